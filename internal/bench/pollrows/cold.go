package pollrows

import (
	"context"
	"fmt"
	"runtime"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/internal/bench"
	"github.com/flowtally/flowtally/shm"
)

const (
	// walked is more than the caches of one core hold.
	walked = 16 << 20
	// coldCycles are those of one round.
	coldCycles = 4
)

// openCold runs an engine at the default period. Before each of its cycles, and before each
// copy, a walk through other memory leaves nothing of theirs in the caches of a core.
func openCold(counters int) func(context.Context, bench.Env) (*bench.Sides, error) {
	return func(ctx context.Context, env bench.Env) (*bench.Sides, error) {
		return bench.Acquire(func(open *bench.Closers) (*bench.Sides, error) {
			r, err := startEngine(ctx, open, counters, dataplane.PollConfig{})
			if err != nil {
				return nil, err
			}
			from, to, err := touched(counters)
			if err != nil {
				return nil, err
			}
			c := &cooler{memory: make([]byte, walked), cpus: []int{env.CPU}}
			if env.Peer >= 0 { // the poller may run there
				c.cpus = []int{env.Peer, env.CPU}
			}
			return &bench.Sides{
				Ours: func(ctx context.Context, n int) (float64, error) { return coldRounds(ctx, r, c, n) },
				Ref: func(_ context.Context, n int) (float64, error) {
					var sum int64
					for range n {
						c.walk()
						took, err := bench.Timed(bench.ThreadCPU, func(int) { copy(to, from) })(nil, 1)
						if err != nil {
							return 0, err
						}
						sum += int64(took)
					}
					return float64(sum) / float64(n), nil
				},
				N: coldCycles, MaxSpread: 0.6,
			}, nil
		})
	}
}

// cooler makes the caches of CPUs cold.
type cooler struct {
	memory []byte
	cpus   []int // the bench's own last
}

func (c *cooler) walk() {
	for i := 0; i < len(c.memory); i += 64 {
		c.memory[i]++
	}
}

// walkAll walks on every CPU. The bench runs each side on a goroutine that is locked to its thread; this
// thread moves to each CPU in turn, to the bench's own last.
func (c *cooler) walkAll() error {
	for _, cpu := range c.cpus {
		if err := bench.PinThread(cpu); err != nil {
			return err
		}
		c.walk()
	}
	return nil
}

// coldRounds waits for n poll cycles, each after a walk, and returns the CPU time of one: that of the process
// without this thread's, which walks and looks for the end of a cycle.
func coldRounds(ctx context.Context, r *shm.Reader, c *cooler, n int) (float64, error) {
	others := func() (int64, error) {
		all, err := bench.ProcessCPU()
		if err != nil {
			return 0, err
		}
		own, err := bench.ThreadCPU()
		return all - own, err
	}
	if err := nextCycle(ctx, r); err != nil {
		return 0, err
	}
	start, err := others()
	if err != nil {
		return 0, err
	}
	first := r.Status().Cycle
	for range n {
		if err := c.walkAll(); err != nil {
			return 0, err
		}
		if err := nextCycle(ctx, r); err != nil {
			return 0, err
		}
	}
	end, err := others()
	if err != nil {
		return 0, err
	}
	done := r.Status().Cycle - first // one may pass during a walk
	if done > 2*uint64(n) {
		return 0, fmt.Errorf("%w: %d cycles passed in place of %d", bench.ErrDisturbed, done, n)
	}
	return float64(end-start) / float64(done), nil
}

// nextCycle waits for the end of a poll cycle. It spins, because the CPU time of waking a sleeping thread
// would be in the time of the process that is measured.
func nextCycle(ctx context.Context, r *shm.Reader) error {
	for was := r.Status().Cycle; r.Status().Cycle == was; {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("waiting for a poll cycle: %w", err)
		}
		for range 1000 {
			runtime.KeepAlive(r)
		}
	}
	return nil
}
