package pollrows

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/internal/bench"
	"github.com/flowtally/flowtally/shm"
)

const (
	// walked is more than the caches of one core hold.
	walked = 16 << 20
	// coldPeriod is the default period of the poller.
	coldPeriod = 10 * time.Millisecond
	// coldCycles is the number of cycles of one round.
	coldCycles = 2
)

// openCold runs an engine at the default period and, while that stands still, a goroutine that a ticker of the same
// period wakes to make one copy. Before each cycle of either, a walk through other memory on each CPU leaves
// nothing of theirs in the caches of a core.
func openCold(counters int) func(context.Context, bench.Env) (*bench.Sides, error) {
	return func(ctx context.Context, env bench.Env) (*bench.Sides, error) {
		return bench.Acquire(func(open *bench.Closers) (*bench.Sides, error) {
			r, counted, err := startEngine(ctx, open, counters, dataplane.PollConfig{Period: coldPeriod}, false)
			if err != nil {
				return nil, err
			}
			from, to, err := touched(counters)
			if err != nil {
				return nil, err
			}
			c := &cold{
				cooler: cooler{memory: make([]byte, walked), cpus: []int{env.CPU}},
				reader: r,
				gate:   &counted.gate,
				from:   from,
				to:     to,
			}
			if env.Peer >= 0 { // either side may run there
				c.cpus = []int{env.Peer, env.CPU}
			}
			return &bench.Sides{
				Ours:      c.polled,
				Ref:       c.copied,
				N:         coldCycles,
				MaxSpread: 0.3,
			}, nil
		})
	}
}

// cold is a poller at the default period, and the memory that a goroutine copies in its place.
type cold struct {
	cooler
	reader   *shm.Reader
	gate     *gate
	from, to []byte
}

// polled is the cost of a poll cycle.
func (c *cold) polled(ctx context.Context, n int) (float64, error) {
	cycles := func() uint64 { return c.reader.Status().Cycle }

	// A poller that stood makes up for one cycle at once.
	if err := next(ctx, cycles); err != nil {
		return 0, err
	}
	return c.rounds(ctx, cycles, n)
}

// copied is the cost of a copy, while the poller stands.
func (c *cold) copied(ctx context.Context, n int) (float64, error) {
	resume, err := c.gate.stop(ctx)
	if err != nil {
		return 0, err
	}
	defer resume()

	copies, end := copyPeriodically(c.to, c.from)
	defer end()
	return c.rounds(ctx, copies, n)
}

// copyPeriodically makes one copy each period on a goroutine of its own. It returns a function that tells how many
// were made, and one that ends it.
func copyPeriodically(to, from []byte) (cycles func() uint64, end func()) {
	var n atomic.Uint64
	var running sync.WaitGroup
	ended := make(chan struct{})
	running.Go(func() {
		tick := time.NewTicker(coldPeriod)
		defer tick.Stop()
		for {
			select {
			case <-ended:
				return
			case <-tick.C:
				copy(to, from)
				n.Add(1)
			}
		}
	})
	return n.Load, func() {
		close(ended)
		running.Wait()
	}
}

// cooler makes the caches of CPUs cold.
type cooler struct {
	memory []byte
	cpus   []int // the bench's own last
}

// walk moves this thread to each CPU in turn, and there through the memory. The bench runs each side on a goroutine
// that is locked to its thread, so the thread ends on the bench's own CPU, the last.
func (c *cooler) walk() error {
	for _, cpu := range c.cpus {
		if err := bench.PinThread(cpu); err != nil {
			return err
		}
		for i := 0; i < len(c.memory); i += 64 {
			c.memory[i]++
		}
	}
	return nil
}

// rounds waits for n cycles, each after a walk, and returns the CPU time of one: the time of the process
// without this thread's, which walks and looks for the end of a cycle.
func (c *cooler) rounds(ctx context.Context, cycle func() uint64, n int) (float64, error) {
	if err := next(ctx, cycle); err != nil {
		return 0, err
	}
	start, err := bench.OthersCPU()
	if err != nil {
		return 0, err
	}
	first := cycle()
	for range n {
		if err := c.walk(); err != nil {
			return 0, err
		}
		if err := next(ctx, cycle); err != nil {
			return 0, err
		}
	}
	end, err := bench.OthersCPU()
	if err != nil {
		return 0, err
	}
	done := cycle() - first // one may pass during a walk
	if done > 2*uint64(n) {
		return 0, fmt.Errorf("%w: %d cycles passed in place of %d", bench.ErrDisturbed, done, n)
	}
	return float64(end-start) / float64(done), nil
}

// next waits for the end of a cycle. It spins, because the CPU time of waking a sleeping thread
// would be in the time of the process that is measured.
func next(ctx context.Context, cycle func() uint64) error {
	for was := cycle(); cycle() == was; {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("waiting for a cycle: %w", err)
		}
		for range 1000 {
			runtime.KeepAlive(cycle)
		}
	}
	return nil
}
