package pollrows

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/shm"
	"github.com/flowtally/flowtally/xdp"
)

// kernelCounters is the part of the xdp backend that a poll cycle meets: real
// counters in a BPF map, read as that backend reads them. It attaches nothing,
// so that the bench needs no interface and disturbs none.
type kernelCounters struct {
	rules *xdp.Datapath
	gate  gate
	still bool   // the marks are the true ones, of counters without packets; else every mark changes in every cycle
	cycle uint32 // the next one
}

// gate stops the poller in the middle of a cycle. A poller that stands costs no CPU time: since Go 1.23 a
// ticker runs only while a goroutine waits for it.
type gate struct{ shut atomic.Pointer[pause] } // nil: open

// pause is one stop of the poller. Each channel is closed when that has come.
type pause struct{ begun, over chan struct{} }

// pass waits while the gate is shut. The poller calls it in each cycle.
func (g *gate) pass() {
	if p := g.shut.Load(); p != nil {
		close(p.begun)
		<-p.over
	}
}

// stop returns when the poller stands. The function that it returns lets the poller go on.
func (g *gate) stop(ctx context.Context) (resume func(), err error) {
	p := &pause{begun: make(chan struct{}), over: make(chan struct{})}
	g.shut.Store(p)
	resume = func() {
		g.shut.Store(nil)
		close(p.over)
	}
	select {
	case <-p.begun:
		return resume, nil
	case <-ctx.Done():
		resume()
		return nil, fmt.Errorf("waiting for the poller to stop: %w", ctx.Err())
	}
}

func (*kernelCounters) Name() string { return "xdp" }

func (k *kernelCounters) Install(_ context.Context, flows []backend.Placed) ([]backend.Installed, error) {
	out := make([]backend.Installed, 0, len(flows))
	for _, f := range flows {
		c, err := k.rules.AllocCounter(f.Name)
		if err != nil {
			return nil, fmt.Errorf("flow %q: allocating a counter: %w", f.Name, err)
		}
		out = append(out, backend.Installed{ID: c.ID, Cookie: c.Cookie, Source: k.Source(f), Basis: "l2"})
	}
	return out, nil
}

func (*kernelCounters) Remove(context.Context, []backend.Placed) error { return nil }

func (*kernelCounters) RemoveStale(context.Context) error { return nil }

func (k *kernelCounters) Read(ids []uint32, dst []backend.Pair) error {
	k.gate.pass()
	return xdp.ReadPairs(k.rules, ids, dst)
}

func (k *kernelCounters) ReadRows(first uint32, dst []shm.Value, at int64) error {
	k.gate.pass()
	return xdp.ReadRows(k.rules, first, dst, at)
}

func (k *kernelCounters) Marks(dst []uint32) error {
	k.gate.pass()
	err := k.rules.Marks(dst)
	if !k.still {
		k.cycle++
		for i := range dst {
			dst[i] += k.cycle
		}
	}
	return err
}

func (*kernelCounters) Source(backend.Placed) dataplane.Source {
	return dataplane.Source{Backend: "xdp"}
}

func (*kernelCounters) Conditions() []dataplane.Condition { return nil }

func (*kernelCounters) Changed() <-chan struct{} { return nil }

// Close leaves the rule set open: its owner closes it.
func (*kernelCounters) Close(bool) error { return nil }
