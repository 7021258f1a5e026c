package e2e

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/ibv/ibvtest"
	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/internal/lab/need"
	"github.com/flowtally/flowtally/shm"
)

// A device that is removed amid traffic: the mirror's totals and the losses that the plugin's
// events declare add up to the packets sent. With rdma.audit no packet is lost, and the device may
// come back amid traffic too: packets that passed while it began to count are added at the first
// moment without traffic.
func TestADeviceRemovedInTrafficDeclaresWhatIsLost(t *testing.T) {
	needLab(t)
	need.RDMACore(t)
	need.Tool(t, "gcc")
	for _, audit := range []bool{false, true} {
		t.Run(fmt.Sprintf("audit %t", audit), func(t *testing.T) { removeInTraffic(t, audit) })
	}
}

func removeInTraffic(t *testing.T, audit bool) {
	preload := preloaded(t)
	control, err := ibvtest.NewControl(filepath.Join(t.TempDir(), "control"))
	if err != nil {
		t.Fatal(err)
	}
	defer control.Close()
	b := newBenchOf(t, time.Second, func(near string) (dataplane.Config, []string) {
		return dataplane.Config{
			Backend: "auto",
			RDMA:    dataplane.RDMAConfig{Audit: audit, ByteBasis: dataplane.BasisL2}, // the software NIC counts as XDP does
			Flows: []flow.Flow{
				{Name: "dns", Match: match(t, "ipv4 udp dport 53")},
				// Left to XDP, which is therefore attached all the time, and sees the device's
				// packets.
				{Name: "last-hop", Match: match(t, "ipv6 hoplimit 1")},
			},
		}, append(ibvtest.Env{Devices: []ibvtest.Device{{Name: "mlx5_0", Netdev: near}}, Control: control.Path()}.Environ(), preload...)
	})
	events, err := b.client.Events(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	b.awaitSource(t, "dns", "rdma:mlx5_0/devx")
	s := dns(t, b, 20_000) // of which the NIC that is a program holds more than a second
	traffic, stop := context.WithCancel(t.Context())
	defer stop()
	sent := make(chan error, 1)
	go func() { sent <- s.Run(traffic, 0) }()
	pause := func() { time.Sleep(400 * time.Millisecond) }

	pause()
	if err := control.Remove("mlx5_0"); err != nil {
		t.Fatal(err)
	}
	b.awaitSource(t, "dns", "xdp:")
	pause()
	end := func() {
		stop()
		if err := <-sent; err != nil {
			t.Fatal(err)
		}
		if err := s.Settle(t.Context()); err != nil {
			t.Fatal(err)
		}
		final(t, b, "dns")
	}
	if !audit {
		end()
	}
	if err := control.Return("mlx5_0"); err != nil {
		t.Fatal(err)
	}
	b.awaitSource(t, "dns", "rdma:mlx5_0/devx")
	if audit {
		pause()
		end()
	}

	got, want := final(t, b, "dns"), s.Sent()[0]
	for deadline := time.Now().Add(patience); audit && got != want && time.Now().Before(deadline); {
		got = final(t, b, "dns")
	}
	lacks, moves := declared(t, events, "dns", 2)
	t.Logf("sent %+v, counted %+v, declared lost %+v in %d moves", want, got, lacks, moves)
	if moves < 2 || moves > 3 || moves == 3 && !audit { // with audit, an event reports the packets added later
		t.Errorf("%d changes of source were told", moves)
	}
	if sum := (lab.Tally{Packets: got.Packets + lacks.Packets, Bytes: got.Bytes + lacks.Bytes}); !audit && (sum != want || lacks.Unknown) {
		t.Errorf("counted %+v and declared %+v lost of %+v", got, lacks, want)
	}
	if audit && (got != want || lacks.Packets > 0) {
		t.Errorf("with audit, counted %+v of %+v, and %+v is declared lost", got, want, lacks)
	}
	if n := b.entry(t, "dns").Continuity.Discontinuities; n > 2 {
		t.Errorf("%d discontinuities in two moves", n)
	}
}

// declared sums the losses declared by the changes of a flow's source, and waits for at least that
// many changes.
func declared(t *testing.T, events <-chan dataplane.Event, name string, least int) (sum dataplane.Uncounted, moves int) {
	t.Helper()
	for {
		quiet := patience
		if moves >= least {
			quiet = 500 * time.Millisecond // there should be no other
		}
		select {
		case ev, ok := <-events:
			if !ok {
				t.Fatal("the stream of events ended")
			}
			if ev.Kind == dataplane.SourceChanged && ev.Object == name {
				moves++
				t.Logf("%s: %s: %+v", ev.Object, ev.Text, ev.Uncounted)
				sum.Packets += ev.Uncounted.Packets
				sum.Bytes += ev.Uncounted.Bytes
				sum.Unknown = sum.Unknown || ev.Uncounted.Unknown
			}
		case <-time.After(quiet):
			return sum, moves
		}
	}
}

// entry returns the flow's entry in the mirror.
func (b *bench) entry(t *testing.T, name string) shm.Entry {
	t.Helper()
	r, err := shm.OpenReader(b.info.Mirror)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	h, err := r.Lookup(name)
	if err != nil {
		t.Fatal(err)
	}
	e, err := r.Entry(h)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// awaitSource waits until the mirror shows a source of the flow that begins with prefix.
func (b *bench) awaitSource(t *testing.T, name, prefix string) {
	t.Helper()
	var is string
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if is = b.entry(t, name).Source; strings.HasPrefix(is, prefix) {
			return
		}
	}
	t.Fatalf("%s is counted by %q, not by %s", name, is, prefix)
}
