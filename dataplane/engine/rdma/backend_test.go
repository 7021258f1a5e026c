package rdma

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/probe"
	"github.com/flowtally/flowtally/shm"
)

var _ backend.HardwareBackend = (*Backend)(nil)

func placedUDP(t *testing.T, name string, port int, order uint32) backend.Placed {
	t.Helper()
	return backend.Placed{Flow: flow.Flow{Name: name, Match: flow.MustParse("m", fmt.Sprintf("ipv4 udp dport %d", port)).Match}, Order: order}
}

func mustInstall(t *testing.T, b *Backend, flows ...backend.Placed) []backend.Installed {
	t.Helper()
	in, err := b.Install(t.Context(), flows)
	if err != nil {
		t.Fatal(err)
	}
	return in
}

func sampleOf(t *testing.T, b *Backend, id uint32) (backend.Pair, int64) {
	t.Helper()
	var p [1]backend.Pair
	var at [1]int64
	if err := b.ReadTimed([]uint32{id}, p[:], at[:]); err != nil {
		t.Fatal(err)
	}
	return p[0], at[0]
}

// sampledAs waits until a slot is sampled with a value.
func sampledAs(t *testing.T, b *Backend, id uint32, want backend.Pair) {
	t.Helper()
	var got backend.Pair
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if got, _ = sampleOf(t, b, id); got == want {
			return
		}
	}
	t.Fatalf("counter %d shows %+v, want %+v", id, got, want)
}

func TestAFlowIsTheSumOfItsDevices(t *testing.T) {
	h := newFakeHost("eth0", "eth1")
	b := openFake(t, h, "eth0", "eth1")
	one := placedUDP(t, "one", 2, 1)
	one.Interface = "eth1"
	in := mustInstall(t, b, placedUDP(t, "both", 1, 0), one)
	const want = "rdma:fake0,fake1/devx,devx"
	if in[0].Source.String() != want || in[0].Basis != "unknown" || in[0].Takes {
		t.Errorf("installed %+v, want source %s", in[0], want)
	}
	if in[0].Cookie == 0 || in[1].Source.DeviceNames() != "fake1" {
		t.Errorf("installed %+v", in)
	}
	h.nic(0).set(t, 1, backend.Pair{Packets: 3, Bytes: 300})
	h.nic(1).set(t, 1, backend.Pair{Packets: 4, Bytes: 500})
	h.nic(1).set(t, 2, backend.Pair{Packets: 1, Bytes: 60})
	sampledAs(t, b, in[0].ID, backend.Pair{Packets: 7, Bytes: 800})
	sampledAs(t, b, in[1].ID, backend.Pair{Packets: 1, Bytes: 60})
}

// A slot of a bulk still has the count of its earlier flow, but the next flow must begin at 0.
func TestCountersBeginAtTheirBaseline(t *testing.T) {
	h := newFakeHost("eth0")
	b := openFake(t, h, "eth0")
	first := placedUDP(t, "first", 1, 0)
	in := mustInstall(t, b, first)
	h.nic(0).set(t, 1, backend.Pair{Packets: 100, Bytes: 6000})
	if err := b.Remove(t.Context(), []backend.Placed{first}); err != nil {
		t.Fatal(err)
	}
	if got, at := sampleOf(t, b, in[0].ID); got != (backend.Pair{Packets: 100, Bytes: 6000}) || at == 0 {
		t.Errorf("a removed flow shows %+v at %d, want what it counted to the end", got, at)
	}
	bulk := b.devices[0].pools[0]
	lab.Eventually(t, "reading the bulk after the flow", func() bool {
		bulk.mu.Lock()
		defer bulk.mu.Unlock()
		return bulk.asked > bulk.members[0].freed
	})
	again := mustInstall(t, b, placedUDP(t, "second", 2, 1))
	if got, _ := sampleOf(t, b, again[0].ID); got != (backend.Pair{}) {
		t.Errorf("a new flow begins at %+v", got)
	}
	if again[0].Cookie == in[0].Cookie {
		t.Error("two flows have one cookie")
	}
	h.nic(0).set(t, 2, backend.Pair{Packets: 103, Bytes: 6200})
	sampledAs(t, b, again[0].ID, backend.Pair{Packets: 3, Bytes: 200})
}

func TestAllOrNoneIsInstalled(t *testing.T) {
	h := newFakeHost("eth0")
	b := openFake(t, h, "eth0")
	bad := placedUDP(t, "bad", 3, 1)
	bad.Match = flow.MustParse("m", "ipv4 ttl 3").Match
	if _, err := b.Install(t.Context(), []backend.Placed{placedUDP(t, "good", 1, 0), bad}); !errors.Is(err, probe.ErrNotSupported) || !strings.Contains(err.Error(), `"bad"`) {
		t.Errorf("error %v, want one about the flow that does not fit", err)
	}
	n := h.nic(0)
	n.mu.Lock()
	n.failRule = syscall.ENOMEM
	n.mu.Unlock()
	if _, err := b.Install(t.Context(), []backend.Placed{placedUDP(t, "good", 1, 0)}); !errors.Is(err, syscall.ENOMEM) {
		t.Errorf("error %v, want the device's", err)
	}
	n.mu.Lock()
	n.failRule = nil
	n.mu.Unlock()
	n.setFail(syscall.EIO)
	if _, err := b.Install(t.Context(), []backend.Placed{placedUDP(t, "good", 1, 0)}); !errors.Is(err, syscall.EIO) {
		t.Errorf("error %v, want that of reading", err)
	}
	n.setFail(nil)
	n.mu.Lock()
	if len(n.rules) > 0 {
		t.Errorf("%d rules are left of flows that were refused", len(n.rules))
	}
	n.mu.Unlock()
	mustInstall(t, b, placedUDP(t, "good", 1, 0))
}

// The engine declares a loss to the flows behind those of such a call: a rule that was in force may have counted their packets.
func TestARefusalTellsWhetherARuleWasInForce(t *testing.T) {
	mpls := placedUDP(t, "mpls", 1, 0)
	mpls.Match = flow.MustParse("m", "mpls label 7").Match // two rules
	for _, c := range []struct {
		name  string
		after int // this many rules, the device refuses
		flows []backend.Placed
		want  bool
	}{
		{"the first rule is refused", 0, []backend.Placed{mpls}, false},
		{"the second rule of a flow is refused", 1, []backend.Placed{mpls}, true},
		{"the second flow is refused", 1, []backend.Placed{placedUDP(t, "a", 1, 0), placedUDP(t, "b", 2, 1)}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newFakeHost("eth0")
			b := openFake(t, h, "eth0")
			n := h.nic(0)
			refuse := func(rules []*fakeRule) {
				n.failRule = nil
				if len(rules) >= c.after {
					n.failRule = syscall.ENOMEM
				}
			}
			n.mu.Lock()
			refuse(n.rules)
			n.onRule = refuse
			n.mu.Unlock()

			_, err := b.Install(t.Context(), c.flows)
			if !errors.Is(err, syscall.ENOMEM) || errors.Is(err, backend.ErrUndone) != c.want {
				t.Errorf("error %v, want ENOMEM, and ErrUndone: %t", err, c.want)
			}
		})
	}
}

func TestFitsRefusesFlowsThatWouldCountTwice(t *testing.T) {
	h := newFakeHost("eth0")
	h.shape.by, h.shape.dontTrap, h.shape.bulk = withVerbs, true, 1
	b := openFake(t, h, "eth0", "eth1")
	on := func(name, iface string, action flow.Action) backend.Placed {
		p := placedUDP(t, name, 53, 0)
		p.Interface, p.Action = iface, action
		return p
	}
	for _, c := range []struct {
		name  string
		flow  backend.Placed
		above []backend.Placed
		want  string // of the reason; empty: it fits
	}{
		{"alone", on("f", "eth0", flow.Count), nil, ""},
		{"an interface without a device", on("f", "eth1", flow.Count), nil, "eth1"},
		{"all interfaces, one without a device", on("f", "", flow.Count), nil, "eth1"},
		{"below what counts and passes on", on("f", "eth0", flow.Count), []backend.Placed{on("a", "eth0", flow.Count)}, "counted twice"},
		{"below what counts elsewhere", on("f", "eth0", flow.Count), []backend.Placed{on("a", "eth1", flow.Count)}, ""},
		{"below what drops", on("f", "eth0", flow.Count), []backend.Placed{on("a", "eth0", flow.Drop)}, ""},
	} {
		err := b.Fits(c.flow.Flow, c.above, nil)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
	// Install refuses the flow too, even if nobody has asked Fits before.
	mustInstall(t, b, on("a", "eth0", flow.Count))
	_, err := b.Install(t.Context(), []backend.Placed{on("f", "eth0", flow.Count)})
	if !errors.Is(err, probe.ErrNotSupported) {
		t.Fatalf("error %v: a flow that would be counted twice was installed", err)
	}
	lab.Step(t, fixOf(t, err), "let the flows not overlap")
	beside := placedUDP(t, "beside", 54, 1)
	beside.Interface = "eth0"
	mustInstall(t, b, beside)
	multicast := backend.Placed{Flow: flow.Flow{Name: "m", Interface: "eth0", Action: flow.Drop, Match: flow.MustParse("m", "eth dst 01:00:5e:00:00:01").Match}}
	if err := b.Fits(multicast.Flow, nil, nil); err == nil || !strings.Contains(err.Error(), "behind all others") {
		t.Errorf("a rule that mlx5 puts last: %v", err)
	}
}

func TestReadTimedAllocatesNothing(t *testing.T) {
	b := openFake(t, newFakeHost("eth0", "eth1"), "eth0", "eth1")
	in := mustInstall(t, b, placedUDP(t, "a", 1, 0), placedUDP(t, "b", 2, 1))
	ids, dst, at := []uint32{in[0].ID, in[1].ID}, make([]backend.Pair, 2), make([]int64, 2)
	if n := testing.AllocsPerRun(1000, func() { _ = b.ReadTimed(ids, dst, at) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if at[0] == 0 || at[0] > shm.Now() {
		t.Errorf("sampled at %d, now is %d", at[0], shm.Now())
	}
}

func TestHostsWithoutRDMAAreToldSo(t *testing.T) {
	h := newFakeHost("eth7")
	o := Options{Interfaces: []dataplane.Interface{{Name: "lo"}}, Logger: slog.New(slog.DiscardHandler)}
	b, err := open(t.Context(), o, h, shm.Now)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Absent(); !errors.Is(err, backend.ErrNoDevice) || !errors.Is(err, probe.ErrNotSupported) || !strings.Contains(err.Error(), "fake0 (eth7)") {
		t.Errorf("absent: %v, want errNoDevice and what there is", err)
	}
	if err := b.Close(false); err != nil {
		t.Error(err)
	}
	if !h.closed {
		t.Error("the host was not closed")
	}
}

// onlySecond is a host whose first device cannot count, like rxe beside the device of the NIC.
type onlySecond struct{ *fakeHost }

func (h onlySecond) open(i portInfo) (nic, error) {
	if i.name == "fake0" {
		return nil, &probe.UnsupportedError{Feature: "counting flows", Object: i.name, Reason: "it has no flows"}
	}
	return h.fakeHost.open(i)
}

func TestOfTwoDevicesTheOneThatCanCountIsOpened(t *testing.T) {
	o := Options{Interfaces: []dataplane.Interface{{Name: "eth0"}}, Logger: slog.New(slog.DiscardHandler)}
	b, err := open(t.Context(), o, onlySecond{newFakeHost("eth0", "eth0")}, shm.Now)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close(false)
	if got := mustInstall(t, b, placedUDP(t, "a", 1, 0))[0].Source.DeviceNames(); got != "fake1" {
		t.Errorf("counted by %q, want fake1", got)
	}
	_, err = open(t.Context(), o, onlySecond{newFakeHost("eth0")}, shm.Now)
	if errors.Is(err, backend.ErrNoDevice) || !errors.Is(err, probe.ErrNotSupported) {
		t.Errorf("error %v, want that a device is there and cannot count", err)
	}
}

func TestCloseIsIdempotent(t *testing.T) {
	h := newFakeHost("eth0")
	b := openFake(t, h, "eth0")
	mustInstall(t, b, placedUDP(t, "a", 1, 0))
	for range 2 {
		if err := b.Close(true); err != nil {
			t.Error(err)
		}
	}
	if _, err := b.Install(t.Context(), []backend.Placed{placedUDP(t, "b", 2, 1)}); err == nil {
		t.Error("a closed backend installs")
	}
}

// Close must end in time even if firmware never returns from a command.
func TestCloseIsBounded(t *testing.T) {
	h := newFakeHost("eth0")
	b := openFake(t, h, "eth0")
	b.closeBound = 20 * time.Millisecond
	mustInstall(t, b, placedUDP(t, "a", 1, 0))
	n := h.nic(0)
	n.mu.Lock() // from here on every verb blocks
	err := b.Close(false)
	n.mu.Unlock()
	if err == nil || !strings.Contains(err.Error(), "not closed after") {
		t.Errorf("error %v, want that it was not waited for", err)
	}
	lab.Eventually(t, "closing all the same", func() bool { h.mu.Lock(); defer h.mu.Unlock(); return h.closed })
}

func TestInstallEndsWithItsContext(t *testing.T) {
	b := openFake(t, newFakeHost("eth0"), "eth0")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := b.Install(ctx, []backend.Placed{placedUDP(t, "a", 1, 0)}); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want the context's", err)
	}
}
