package engine

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/engine/xdp"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/internal/lab/need"
)

// passing attaches a program of another owner to a TCX hook. It ends the chain: the packet is passed.
func passing(t *testing.T, e *lab.End, at ebpf.AttachType, place link.Anchor) *link.Info {
	t.Helper()
	const tcxPass = 0
	l, err := e.AttachNeighbour(at, tcxPass, place)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	info, err := l.Info()
	if err != nil {
		t.Fatal(err)
	}
	return info
}

// noNeighbour looks at the hooks now and checks that no program is seen before ours.
func noNeighbour(t *testing.T, e *Engine) {
	t.Helper()
	x := e.backends[0].(*xdp.Backend)
	x.CheckAll()
	for _, c := range x.Conditions() {
		if c.Code == "tcx-before" {
			t.Errorf("condition %+v", c)
		}
	}
}

// leave sends n of each frame from the near end through its stack, and returns how many packets
// arrived. A frame that is dropped on the way out is refused to the sender, and sent once all the same.
func (b *bench) leave(t *testing.T, n uint64, frames ...[]byte) (sent []backend.Pair, arrived uint64) {
	t.Helper()
	before, err := b.wire.Far.Stats()
	if err != nil {
		t.Fatal(err)
	}
	err = b.wire.Near.NS.Do(func() error {
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		to := &unix.SockaddrLinklayer{Ifindex: b.wire.Near.Index}
		for _, f := range frames {
			for range n {
				if err := unix.Sendto(fd, f, 0, to); err != nil && !errors.Is(err, unix.ENOBUFS) {
					return err
				}
			}
			sent = append(sent, backend.Pair{Packets: n, Bytes: n * uint64(len(f))})
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	after, err := b.wire.Far.Stats()
	if err != nil {
		t.Fatal(err)
	}
	return sent, after.RxPackets - before.RxPackets
}

// A TCX program that ends the chain before ours hides packets and passes packets that a flow
// drops. The first place, which is the default, keeps that from happening; where it happens a condition names the program.
func TestATCXNeighbourThatHidesPacketsIsACondition(t *testing.T) {
	t.Parallel()
	need.TCX(t)
	counted, dropped := udpTo(1001, 60), udpTo(1002, 60)
	flows := []flow.Flow{
		{Name: "counted", Match: match(t, "udp dport 1001"), Direction: flow.Egress},
		{Name: "dropped", Match: match(t, "udp dport 1002"), Direction: flow.Egress, Action: flow.Drop},
	}
	const n = 1000 // of each flow
	for _, c := range []struct {
		tcx           string
		before, after link.Anchor // where the neighbour goes, before or after ours was attached
		seen          bool
		severity      dataplane.Severity
	}{
		{tcx: "", before: link.Head(), seen: true},
		{tcx: "first", before: link.Tail(), seen: true},
		{tcx: "first", after: link.Tail(), seen: true},
		{tcx: "first", after: link.Head(), severity: dataplane.Medium},
		{tcx: "last", before: link.Head(), severity: dataplane.Low},
		{tcx: "last", after: link.Tail(), seen: true},
	} {
		t.Run(fmt.Sprintf("%s, before %T, after %T", c.tcx, c.before, c.after), func(t *testing.T) {
			b := newBench(t, "native", flows...)
			b.cfg.XDP.TCX = c.tcx
			var other *link.Info
			if c.before != nil {
				other = passing(t, b.wire.Near, ebpf.AttachTCXEgress, c.before)
			}
			e := b.start(t)
			if c.after != nil {
				other = passing(t, b.wire.Near, ebpf.AttachTCXEgress, c.after)
			}
			if !c.seen {
				got := awaitCondition(t, e, "tcx-before", b.wire.Near.Name, true)
				if got.Severity != c.severity || !strings.Contains(got.Text, fmt.Sprintf("(id %d)", other.Program)) {
					t.Errorf("condition %+v", got)
				}
			}
			sent, arrived := b.leave(t, n, counted, dropped)
			want, through := []backend.Pair{{}, {}}, sent[0].Packets+sent[1].Packets
			if c.seen {
				want, through = []backend.Pair{backend.Pair(sent[0]), backend.Pair(sent[1])}, sent[0].Packets
			}
			r := reader(t, b.cfg)
			await(t, r, "counted", want[0])
			await(t, r, "dropped", want[1])
			if arrived != through {
				t.Errorf("%d packets arrived, want %d", arrived, through)
			}
			t.Logf("xdp.tcx %q: %d of %d counted, %d arrived", c.tcx, want[0].Packets+want[1].Packets, 2*n, arrived)
			if c.seen {
				noNeighbour(t, e)
			}
		})
	}
}

// The fixes that tcx-before names end it: a restart that does not keep the pins, and a detached neighbour.
func TestFixesOfATCXNeighbourEndTheCondition(t *testing.T) {
	need.TCX(t)
	b := newBench(t, "native", flow.Flow{Name: "a", Match: match(t, "udp dport 1001"), Direction: flow.Egress})
	b.cfg.XDP.KeepPins, b.cfg.XDP.TCX = true, "last"
	frame := udpTo(1001, 60)
	e := b.start(t)
	passing(t, b.wire.Near, ebpf.AttachTCXEgress, link.Head())
	restart := func(c dataplane.Condition) {
		t.Helper()
		lab.Step(t, c.Fix, "apply xdp.keep_pins: false, then restart flowtally")
		b.cfg.XDP.KeepPins = false
		running := b.cfg
		running.XDP.TCX = map[dataplane.Severity]string{dataplane.Low: "last", dataplane.Medium: "first"}[c.Severity]
		if _, err := e.SetFlows(t.Context(), b.cfg.Flows, dataplane.SetOptions{Config: &running}); err != nil {
			t.Fatal(err)
		}
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
		e = b.start(t)
	}
	c := awaitCondition(t, e, "tcx-before", b.wire.Near.Name, true)
	lab.Step(t, c.Fix, "else set xdp.tcx to first")
	b.cfg.XDP.TCX = "first"
	restart(c)
	noNeighbour(t, e)

	passing(t, b.wire.Near, ebpf.AttachTCXEgress, link.Head())
	restart(awaitCondition(t, e, "tcx-before", b.wire.Near.Name, true))
	sent, _ := b.leave(t, 1000, frame)
	total := sent[0]
	await(t, reader(t, b.cfg), "a", total)
	noNeighbour(t, e)

	other := passing(t, b.wire.Near, ebpf.AttachTCXEgress, link.Head())
	got := awaitCondition(t, e, "tcx-before", b.wire.Near.Name, true)
	lab.Step(t, got.Fix, "or detach the other program: …")
	detach := lab.Step(t, got.Fix, "bpftool link detach id …")
	if want := fmt.Sprintf(" id %d", other.ID); !strings.HasSuffix(detach, want) {
		t.Fatalf("the fix is %q, want %q", got.Fix, want)
	}
	b.wire.Near.Do(t, detach)
	awaitCondition(t, e, "tcx-before", b.wire.Near.Name, false)
	sent, _ = b.leave(t, 1000, frame)
	await(t, reader(t, b.cfg), "a", backend.Add(total, sent[0]))
}

// TCX programs of ingress run behind XDP: one that ends their chain hides nothing from it.
func TestATCXNeighbourOnIngressHidesNothingFromXDP(t *testing.T) {
	need.TCX(t)
	for _, mode := range []string{"native", "generic"} {
		t.Run(mode, func(t *testing.T) {
			b := newBench(t, mode, flow.Flow{Name: "a", Match: match(t, "udp dport 1001")}, flow.Flow{Name: "dropped", Match: match(t, "udp dport 1002"), Action: flow.Drop})
			passing(t, b.wire.Near, ebpf.AttachTCXIngress, link.Head())
			e := b.start(t)
			passing(t, b.wire.Near, ebpf.AttachTCXIngress, link.Head())
			sent := b.send(t, 1000, lab.Stream{Frames: [][]byte{udpTo(1001, 60)}}, lab.Stream{Frames: [][]byte{udpTo(1002, 60)}})
			await(t, reader(t, b.cfg), "a", backend.Pair(sent[0]))
			await(t, reader(t, b.cfg), "dropped", backend.Pair(sent[1]))
			noNeighbour(t, e)
		})
	}
}
