package engine

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/lab"
)

// faultyReads is a backend whose reads fail, or take long.
type faultyReads struct {
	*handBackend
	fails atomic.Bool
	takes time.Duration // of a CPU, so that a busy machine adds little to it
}

func (b *faultyReads) Read(ids []uint32, dst []backend.Pair) error {
	for began := time.Now(); time.Since(began) < b.takes; {
	}
	if b.fails.Load() {
		return errors.New("the map is gone")
	}
	return b.handBackend.Read(ids, dst)
}

// After a restart the source is read, and the total goes on.
func TestFixOfASourceThatCannotBeReadLetsTheTotalGoOn(t *testing.T) {
	t.Parallel()
	b := &faultyReads{handBackend: newHand("hand")}
	cfg := config(t, flow.Flow{Name: "a", Match: match(t, "udp")})
	e := start(t, cfg, b)
	b.count("a", backend.Pair{Packets: 1000, Bytes: 64000})
	await(t, reader(t, cfg), "a", backend.Pair{Packets: 1000, Bytes: 64000})
	b.fails.Store(true)
	c := awaitCondition(t, e, "source-unreadable", "poller", true)
	lab.Step(t, c.Fix, "restart the instance: totals go on")

	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	b.fails.Store(false)
	e = start(t, cfg, b)
	b.count("a", backend.Pair{Packets: 1500, Bytes: 96000})
	await(t, reader(t, cfg), "a", backend.Pair{Packets: 1500, Bytes: 96000})
	awaitCondition(t, e, "source-unreadable", "poller", false)
}

// A longer period ends the condition, without a restart.
func TestFixOfLatePollCyclesEndsTheCondition(t *testing.T) {
	t.Parallel()
	cfg := config(t, flow.Flow{Name: "a", Match: match(t, "udp")})
	cfg.Poll.Period, cfg.Poll.IdlePeriod = 100*time.Microsecond, 100*time.Microsecond
	e := start(t, cfg, &faultyReads{handBackend: newHand("hand"), takes: 200 * time.Microsecond})
	c := awaitCondition(t, e, "poll-overrun", "poller", true)
	lab.Step(t, c.Fix, "raise poll.period, then: flowtally apply")

	cfg.Poll.Period, cfg.Poll.IdlePeriod = 10*time.Millisecond, 10*time.Millisecond
	if _, err := e.SetFlows(t.Context(), cfg.Flows, dataplane.SetOptions{Config: &cfg}); err != nil {
		t.Fatal(err)
	}
	awaitCondition(t, e, "poll-overrun", "poller", false)
}

// A higher limit ends the condition with the flow that found no room, without a restart.
func TestFixOfAFullMirrorEndsTheCondition(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	cfg.Mirror.Counters = 64
	e := start(t, cfg, newHand("hand"))
	var flows []flow.Flow
	for i := range 65 {
		flows = append(flows, flow.Flow{Name: fmt.Sprint("f", i), Match: match(t, "udp")})
	}
	if _, err := e.AddFlows(t.Context(), flows...); !errors.Is(err, dataplane.ErrFull) {
		t.Fatal(err)
	}
	c := awaitCondition(t, e, "mirror-full", cfg.Mirror.Path, true)
	lab.Step(t, c.Fix, "raise mirror.counters or mirror.latency_counters, then: flowtally apply")

	cfg.Mirror.Counters = 128
	if _, err := e.SetFlows(t.Context(), flows, dataplane.SetOptions{Config: &cfg}); err != nil {
		t.Fatal(err)
	}
	awaitCondition(t, e, "mirror-full", cfg.Mirror.Path, false)
}
