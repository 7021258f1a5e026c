package engine

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf/link"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/engine/xdp"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/internal/lab/need"
	"github.com/flowtally/flowtally/internal/lab/times"
)

// detachByForce takes the pinned programs off their hooks, as `bpftool link detach` does.
func detachByForce(t *testing.T, pins, links string) {
	t.Helper()
	detachOn(t, pins, links, 0)
}

// detachOn is detachByForce for one interface, or for all where index is 0.
func detachOn(t *testing.T, pins, links string, index int) {
	t.Helper()
	if err := tryDetachOn(pins, links, index); err != nil {
		t.Fatal(err)
	}
}

// tryDetachOn is detachOn for pins that an instance may be making again.
func tryDetachOn(pins, links string, index int) error {
	paths, err := filepath.Glob(filepath.Join(pins, links))
	if err != nil || len(paths) == 0 {
		return fmt.Errorf("no pinned link in %s: %w", pins, errors.Join(os.ErrNotExist, err))
	}
	for _, p := range paths {
		l, err := link.LoadPinnedLink(p, nil)
		if err != nil {
			return err
		}
		info, err := l.Info()
		if err == nil && (index == 0 || info.XDP() != nil && int(info.XDP().Ifindex) == index) {
			err = l.Detach()
		}
		if err := errors.Join(err, l.Close()); err != nil {
			return err
		}
	}
	return nil
}

// A hook that is lost and taken again is one discontinuity: the packets in between are not
// known. While a process runs, and over the time in which none does.
func TestALostHookIsADiscontinuity(t *testing.T) {
	b := newBench(t, "native", flow.Flow{Name: "a", Match: match(t, "udp dport 1001")})
	b.cfg.XDP.KeepPins = true
	e := b.start(t)
	events, err := e.Events(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	frames := lab.Stream{Frames: [][]byte{udpTo(1001, 60)}}
	total := backend.Pair(b.send(t, 1000, frames)[0])
	discontinuities := func() uint64 {
		e.ctl.Lock()
		defer e.ctl.Unlock()
		return e.flows["a"].past.Discontinuities
	}
	detachByForce(t, b.cfg.XDP.PinDir, "link-*-xdp")
	for deadline := time.After(20 * time.Second); ; {
		select {
		case ev := <-events:
			if ev.Kind != dataplane.SourceChanged || !ev.Uncounted.Unknown {
				continue
			}
		case <-deadline:
			t.Fatal("nobody says that the hook was lost")
		}
		break
	}
	if n := discontinuities(); n != 1 {
		t.Errorf("%d discontinuities, want 1", n)
	}
	total = backend.Add(total, backend.Pair(b.send(t, 1000, frames)[0]))
	await(t, reader(t, b.cfg), "a", total)
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	detachByForce(t, b.cfg.XDP.PinDir, "link-*-xdp")
	b.cfg.XDP.KeepPins = false
	e = b.start(t)
	if n := discontinuities(); n != 2 {
		t.Errorf("%d discontinuities after a start that took the hook again, want 2", n)
	}
	total = backend.Add(total, backend.Pair(b.send(t, 1000, frames)[0]))
	await(t, reader(t, b.cfg), "a", total)
}

// A program that is detached by force is attached again at once, on each hook. The bound is one
// on hangs: a look every 2 s, which was all there was, does not keep it.
func TestDetachedProgramsAreAttachedAgain(t *testing.T) {
	need.TCX(t)
	rounds := times.Brief(20, 4)
	for _, c := range []struct{ mode, pins string }{{"native", "link-*-xdp"}, {"generic", "link-*-xdp"}, {"native", "link-*-tcx"}} {
		t.Run(c.mode+" "+c.pins, func(t *testing.T) {
			b := newBench(t, c.mode, flow.Flow{Name: "in", Match: match(t, "udp")}, flow.Flow{Name: "out", Match: match(t, "udp"), Direction: flow.Egress})
			e := b.start(t)
			x := e.backends[0].(*xdp.Backend)
			taken := x.Now
			var took []time.Duration
			start := time.Now()
			for range rounds {
				was := taken()
				detachByForce(t, b.cfg.XDP.PinDir, c.pins)
				at := time.Now()
				for taken() == was {
					if time.Since(start) > 25*time.Second {
						t.Fatalf("%d of %d programs were attached again after %s", len(took), rounds, time.Since(start))
					}
					time.Sleep(time.Millisecond)
				}
				took = append(took, time.Since(at))
			}
			slices.Sort(took)
			t.Logf("attached again after %s (median of %d), %s at most", took[rounds/2], rounds, took[rounds-1])
		})
	}
}

// An interface that is missing at the start is waited for, unless all are: then the
// configuration is wrong.
func TestAnInterfaceThatIsMissingAtTheStartIsWaitedFor(t *testing.T) {
	b := newBench(t, "native", flow.Flow{Name: "a", Match: match(t, "udp dport 1001")})
	there, absent := b.cfg.Interfaces[0], dataplane.Interface{Name: lab.Unique("no")}
	b.cfg.Interfaces = []dataplane.Interface{absent}
	err := b.wire.Near.NS.Do(func() error {
		_, err := New(t.Context(), b.cfg, Options{})
		return err
	})
	if err == nil {
		t.Fatal("started without any interface")
	}
	b.cfg.Interfaces = []dataplane.Interface{absent, there}
	e := b.start(t)
	sent := b.send(t, 1000, lab.Stream{Frames: [][]byte{udpTo(1001, 60)}})
	await(t, reader(t, b.cfg), "a", backend.Pair(sent[0]))
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		conditions, err := e.Conditions(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if slices.ContainsFunc(conditions, func(c dataplane.Condition) bool { return c.Code == "interface-missing" && c.Object == absent.Name }) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("conditions are %+v", conditions)
		}
	}
}

// XDP's hooks are taken where a flow needs them and nowhere else, and given up again.
func TestHooksAreTakenWhereTheyAreNeeded(t *testing.T) {
	need.TCX(t)
	b := newBench(t, "native", flow.Flow{Name: "in", Match: match(t, "udp")})
	e := b.start(t)
	x := e.backends[0].(*xdp.Backend)
	modes := func() (out []string) {
		for _, a := range x.Inspect().Rules.Attachments() {
			out = append(out, a.Mode)
		}
		return out
	}
	step := func(what string, want ...string) {
		t.Helper()
		if got := modes(); !slices.Equal(got, want) {
			t.Errorf("%s: programs on %q, want %q", what, got, want)
		}
	}
	step("an ingress flow", "native")
	if _, err := e.AddFlows(t.Context(), flow.Flow{Name: "out", Match: match(t, "udp"), Direction: flow.Egress}); err != nil {
		t.Fatal(err)
	}
	step("one of each", "native", "tcx")
	if err := e.RemoveFlows(t.Context(), "in"); err != nil {
		t.Fatal(err)
	}
	step("an egress flow", "tcx")
	if err := e.RemoveFlows(t.Context(), "out"); err != nil {
		t.Fatal(err)
	}
	step("no flow")
}
