package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/flow"
)

// stuckBackend does not remove flows.
type stuckBackend struct {
	*handBackend
	stuck error
}

func (b *stuckBackend) Remove(ctx context.Context, flows []backend.Placed) error {
	if b.stuck != nil {
		return b.stuck
	}
	return b.handBackend.Remove(ctx, flows)
}

// RemoveFlows removes all or none: a flow that a backend goes on counting stays a flow.
func TestAFlowThatTheBackendKeepsStays(t *testing.T) {
	b := &stuckBackend{handBackend: newHand("hand"), stuck: errors.New("stuck")}
	cfg := config(t, flow.Flow{Name: "a", Match: match(t, "udp")}, flow.Flow{Name: "b", Match: match(t, "tcp")})
	e := start(t, cfg, b)
	if err := e.RemoveFlows(t.Context(), "a", "b"); !errors.Is(err, b.stuck) {
		t.Fatalf("removing: %v, want the backend's reason", err)
	}
	if got, err := e.Placements(t.Context()); err != nil || len(got) != 2 {
		t.Fatalf("%d flows are left, %v; want 2", len(got), err)
	}
	b.count("a", backend.Pair{Packets: 3, Bytes: 300})
	await(t, reader(t, cfg), "a", backend.Pair{Packets: 3, Bytes: 300})
	b.stuck = nil
	if err := e.RemoveFlows(t.Context(), "a", "a", "b"); err != nil {
		t.Fatal(err)
	}
	if got, err := e.Placements(t.Context()); err != nil || len(got) != 0 {
		t.Fatalf("%d flows are left, %v; want none", len(got), err)
	}
}

// oddBackend returns a byte basis that no mirror can hold.
type oddBackend struct {
	*handBackend
	basis string
}

func (b *oddBackend) Install(ctx context.Context, flows []backend.Placed) ([]backend.Installed, error) {
	out, err := b.handBackend.Install(ctx, flows)
	for i := range out {
		out[i].Basis = b.basis
	}
	return out, err
}

// A flow whose entry cannot be finished leaves nothing behind: its name can be added again.
func TestAFlowThatFailsLeavesNoEntry(t *testing.T) {
	b := &oddBackend{handBackend: newHand("hand"), basis: strings.Repeat("x", 100)}
	cfg := config(t)
	e := start(t, cfg, b)
	a := flow.Flow{Name: "a", Match: match(t, "udp")}
	if _, err := e.AddFlows(t.Context(), a); err == nil {
		t.Fatal("a basis of 100 bytes was taken")
	}
	if n := len(e.writer.Entries()); n != 0 {
		t.Errorf("%d entries are left in the mirror", n)
	}
	b.basis = "l2"
	if _, err := e.AddFlows(t.Context(), a); err != nil {
		t.Fatal(err)
	}
}

// A counter that becomes latency-critical, or stops being so, keeps its total
// and its discontinuities.
func TestATotalMovesBetweenBlockAndRecord(t *testing.T) {
	b := newHand("hand")
	a := flow.Flow{Name: "a", Match: match(t, "udp")}
	cfg := config(t, a)
	e := start(t, cfg, b)
	b.count("a", backend.Pair{Packets: 5, Bytes: 500})
	await(t, reader(t, cfg), "a", backend.Pair{Packets: 5, Bytes: 500})
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	b.forget() // from here on the source counts from 0: a base, and one discontinuity
	for i, latency := range []bool{false, true, false} {
		cfg.Flows[0].Latency = latency
		e := start(t, cfg, b)
		p := backend.Pair{Packets: uint64(i + 1), Bytes: 100 * uint64(i+1)}
		b.count("a", p)
		await(t, reader(t, cfg), "a", backend.Pair{Packets: 5 + p.Packets, Bytes: 500 + p.Bytes})
		if c := e.writer.Entries()[0].Continuity; c.Discontinuities != 1 {
			t.Errorf("latency %v: %d discontinuities, want 1", latency, c.Discontinuities)
		}
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// A flow whose match is longer than the mirror's text keeps its total at a restart. Another match of the same beginning
// does not get it.
func TestALongMatchKeepsItsTotal(t *testing.T) {
	const long = "eth src 02:00:00:00:00:01 dst 02:00:00:00:00:02 ipv6 src 2001:db8:1111:2222:3333:4444:5555:6666 " +
		"dst 2001:db8:1111:2222:3333:4444:5555:7777 vxlan inner eth src 02:00:00:00:00:03 dst 02:00:00:00:00:04 " +
		"ipv6 src 2001:db8:aaaa:bbbb:cccc:dddd:eeee:1111 dst 2001:db8:aaaa:bbbb:cccc:dddd:eeee:2222 tcp sport 40000 dport "
	b := newHand("hand")
	cfg := config(t, flow.Flow{Name: "a", Match: match(t, long+"50000")})
	e := start(t, cfg, b)
	b.count("a", backend.Pair{Packets: 5, Bytes: 500})
	await(t, reader(t, cfg), "a", backend.Pair{Packets: 5, Bytes: 500})
	for _, test := range []struct {
		port            string
		packets         uint64
		discontinuities uint64
	}{{"50000", 5, 1}, {"50001", 0, 0}} {
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
		b.forget()
		cfg.Flows[0].Match = match(t, long+test.port)
		if n := len(cfg.Flows[0].Identity()); n <= 287 {
			t.Fatalf("the text has %d bytes: it fits", n)
		}
		e = start(t, cfg, b)
		b.count("a", backend.Pair{Packets: 1, Bytes: 100})
		await(t, reader(t, cfg), "a", backend.Pair{Packets: test.packets + 1, Bytes: 100 * (test.packets + 1)})
		if c := e.writer.Entries()[0].Continuity; c.Discontinuities != test.discontinuities {
			t.Errorf("port %s: %d discontinuities, want %d", test.port, c.Discontinuities, test.discontinuities)
		}
	}
}

// Removing very many flows takes no longer than adding them.
func TestRemovingManyFlowsTakesNoLongerThanAddingThem(t *testing.T) {
	const n = 20_000
	flows, names := make([]flow.Flow, n), make([]string, n)
	for i := range flows {
		names[i] = fmt.Sprint("flow-", i)
		flows[i] = flow.Flow{Name: names[i], Match: match(t, "udp")}
	}
	cfg := config(t)
	cfg.Mirror.Counters = n
	cfg.Poll.Period = time.Hour
	e := start(t, cfg, newHand("hand"))
	begin := cpuTime(t)
	if _, err := e.AddFlows(t.Context(), flows...); err != nil {
		t.Fatal(err)
	}
	added := cpuTime(t) - begin
	begin = cpuTime(t)
	if err := e.RemoveFlows(t.Context(), names...); err != nil {
		t.Fatal(err)
	}
	removed := cpuTime(t) - begin
	t.Logf("%d flows added in %v of CPU time, removed in %v", n, added, removed)
	if removed > 10*added+time.Second {
		t.Errorf("removing %d flows took %v, adding them %v", n, removed, added)
	}
	if err := e.RemoveFlows(t.Context(), "flow-0"); !errors.Is(err, dataplane.ErrNotFound) {
		t.Errorf("removing a flow twice: %v", err)
	}
}

// cpuTime returns the CPU time of this process.
func cpuTime(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
