package pollrows

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"time"

	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/engine/poll"
	"github.com/flowtally/flowtally/internal/bench"
	"github.com/flowtally/flowtally/shm"
	"github.com/flowtally/flowtally/xdp"
)

const (
	manyCPUs     = 64
	manyCounters = 1 << 16
	manyChanged  = manyCounters / 100
)

// manySlots are the counters of a machine of 64 CPUs, in memory of this process.
type manySlots struct{ *xdp.Simulated }

func (manySlots) Name() string { return "xdp" }

func (m manySlots) Read(ids []uint32, dst []backend.Pair) error {
	return xdp.SimulatedPairs(m.Simulated, ids, dst)
}

func (m manySlots) ReadRows(first uint32, dst []shm.Value, at int64) error {
	return xdp.SimulatedRows(m.Simulated, first, dst, at)
}

// openCPUs runs cycles of a plan whose counters have slots on 64 CPUs. Before each cycle, and before each copy, one
// counter in a hundred counts a packet on every CPU: neighbours, or counters at random places.
func openCPUs(spread bool) func(context.Context, bench.Env) (*bench.Sides, error) {
	return func(context.Context, bench.Env) (*bench.Sides, error) {
		return bench.Acquire(func(open *bench.Closers) (*bench.Sides, error) {
			plan, w, slots, err := manyPlan(open)
			if err != nil {
				return nil, err
			}
			rng := rand.New(rand.NewPCG(1, 64))
			ids := make([]uint32, manyChanged)
			count := func() {
				first := rng.Uint32N(manyCounters - manyChanged)
				for i := range ids {
					if ids[i] = first + uint32(i); spread {
						ids[i] = rng.Uint32N(manyCounters)
					}
					for cpu := range manyCPUs {
						slots.Update(cpu, ids[i], 1, 60)
					}
				}
			}
			copied := make([][2]uint64, manyChanged*manyCPUs)
			rows, rowsCopied := make([]shm.Value, manyChanged), make([]shm.Value, manyChanged)
			return &bench.Sides{
				Ours: timedEach(count, func() error { return plan.Cycle(w, shm.Now()) }),
				Ref: timedEach(count, func() error {
					to := copied
					for _, id := range ids {
						for cpu := range manyCPUs {
							to[cpu] = slots.Slot(cpu, id)
						}
						to = to[manyCPUs:]
					}
					copy(rowsCopied, rows)
					return nil
				}),
				N:         4,
				MaxSpread: 0.4,
			}, nil
		})
	}
}

// timedEach makes a side of operations before each of which prepare runs, which is not in the time.
func timedEach(prepare func(), operation func() error) bench.Side {
	return func(_ context.Context, n int) (float64, error) {
		var sum int64
		for range n {
			prepare()
			start, err := bench.ThreadCPU()
			if err != nil {
				return 0, err
			}
			if err := operation(); err != nil {
				return 0, err
			}
			end, err := bench.ThreadCPU()
			if err != nil {
				return 0, err
			}
			sum += end - start
		}
		return float64(sum) / float64(n), nil
	}
}

// manyPlan makes a plan of all counters, and the writer of a mirror for it.
func manyPlan(open *bench.Closers) (*poll.Plan, *shm.Writer, *xdp.Simulated, error) {
	slots, err := xdp.NewSimulated(manyCounters, manyCPUs)
	if err != nil {
		return nil, nil, nil, err
	}
	open.Add(slots.Close)
	dir, err := open.MirrorDir()
	if err != nil {
		return nil, nil, nil, err
	}
	w, err := shm.Create(shm.Options{Path: filepath.Join(dir, "bench.mirror"), Counters: manyCounters, History: -1, HeartbeatPeriod: time.Hour})
	if err != nil {
		return nil, nil, nil, err
	}
	open.Add(w.Close)
	plan := poll.NewPlan(0)
	for i := range uint32(manyCounters) {
		h, err := w.Add(shm.Entry{Name: fmt.Sprintf("f%d", i)})
		if err != nil {
			return nil, nil, nil, err
		}
		plan.AddSegment(h, false)
		plan.SetSource(h, manySlots{slots}, i, backend.Pair{})
		for cpu := range manyCPUs {
			slots.Update(cpu, i, 1, 60) // memory of its own
		}
	}
	return plan, w, slots, nil
}
