package bench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"time"
)

// A virtual CPU is often one of two threads of a physical core. Work on the other thread belongs to another machine,
// and no clock of this one has it. It slows a loop here by a third to two thirds, in stretches of microseconds to
// minutes, and the sides of a row unequally: a side that keeps more of the core's units busy loses more.
//
// A probe is a loop that keeps them all busy. Alone on the core it costs the same to a few parts in a thousand, so its
// lowest cost is sharp, and anything above it is company.
const (
	probeLoops = 5_000 // about 5 µs

	// Factors of the lowest cost.
	sharp = 1.01 // as low
	alone = 1.05 // still alone

	// together is a factor of the cost with the other CPU idle: from there on, the two CPUs are threads of one core. A
	// clock that falls by a step costs less.
	together = 1.2

	enoughLow = 200             // probes as low as the lowest say that it is the floor
	floorTime = 3 * time.Second // at most, to find the floor
	company   = 2 * time.Second // at most, to wait for the core
	warmUp    = 4               // probes after a side, of which one must find the core alone
	retries   = 16              // of one side in one round
)

// stillness tells whether this thread has its core for itself.
type stillness struct {
	probe func() (int64, error) // cost of one probe, ns of the thread's CPU time
	floor int64                 // cost of a probe alone on the core
}

// newStillness finds the floor. To be called on the thread that measures.
func newStillness(ctx context.Context) (*stillness, error) {
	var sink uint64
	s := &stillness{probe: func() (int64, error) {
		t0, err := ThreadCPU()
		if err != nil {
			return 0, err
		}
		sink += spin(probeLoops)
		t1, err := ThreadCPU()
		return t1 - t0, err
	}}
	return s, s.findFloor(ctx)
}

// findFloor sets the floor: the lowest cost that many probes share. A single lower one is the clock's doing: now and
// then a probe costs nothing at all. A second call may lower the floor, because company that stays all the time looks
// like none.
func (s *stillness) findFloor(ctx context.Context) error {
	var costs []int64
	for end := time.Now().Add(floorTime); ; {
		for range enoughLow {
			cost, err := s.probe()
			if err != nil {
				return err
			}
			costs = append(costs, cost)
		}
		slices.Sort(costs)

		floor := sharpest(costs)
		if floor == 0 && (time.Now().After(end) || ctx.Err() != nil) {
			floor = costs[len(costs)/20] // nothing sharp: the best there is
		}
		if floor != 0 {
			if s.floor == 0 || floor < s.floor {
				s.floor = floor
			}
			return nil
		}
	}
}

// sharpest returns the lowest of costs, which are sorted, that enoughLow of them share, or 0.
func sharpest(costs []int64) int64 {
	for i := 0; i+enoughLow <= len(costs); i++ {
		if float64(costs[i+enoughLow-1]) <= sharp*float64(costs[i]) {
			return costs[i]
		}
	}
	return 0
}

// still says whether the core is ours at this moment.
func (s *stillness) still() (bool, error) {
	cost, err := s.probe()
	if err != nil {
		return false, err
	}
	return float64(cost) <= alone*float64(s.floor), nil
}

// await returns when the core has been ours for three probes in a row, or errCompany at end.
func (s *stillness) await(ctx context.Context, end time.Time) error {
	for inRow := 0; inRow < 3; {
		ok, err := s.still()
		switch {
		case err != nil:
			return err
		case ok:
			inRow++
		case ctx.Err() != nil || time.Now().After(end):
			return errCompany
		default:
			inRow = 0
		}
	}
	return nil
}

// run runs one side with the core to itself before and after it. A side that got company runs again, a bounded number
// of times, and then ends with errCompany. A nil stillness runs the side as it comes.
func (s *stillness) run(ctx context.Context, side Side, n int) (float64, error) {
	if s == nil {
		return side(ctx, n)
	}
	end := time.Now().Add(company)
	for range retries {
		if err := s.await(ctx, end); err != nil {
			return 0, err
		}
		ns, err := side(ctx, n)
		if err != nil {
			return 0, err
		}
		// The first probes after a system call find the predictors cold.
		for range warmUp {
			ok, err := s.still()
			if ok || err != nil {
				return ns, err
			}
		}
	}
	return 0, errCompany
}

// apart returns when the other CPU is a core of its own: when work on it is not seen here. A hypervisor moves virtual
// CPUs. Two of them that are threads of one core speak through its first cache (29 ns one way here, against 50 to 63)
// and halve each other.
func (s *stillness) apart(ctx context.Context, peer int) error {
	if s == nil {
		return nil
	}

	// Against the cost just before, and not against the floor, which is too high where there has been company all the
	// time.
	quiet, err := s.lowest()
	if err != nil {
		return err
	}
	stop, err := occupy(peer)
	if err != nil {
		return err
	}
	return errors.Join(s.awaitApart(ctx, quiet), stop())
}

// awaitApart returns when a probe costs about quiet beside an occupied CPU, and the core is ours.
func (s *stillness) awaitApart(ctx context.Context, quiet int64) error {
	for end := time.Now().Add(company); ; {
		busy, err := s.lowest()
		if err != nil {
			return err
		}
		if float64(busy) <= together*float64(quiet) {
			return s.await(ctx, end)
		}
		// A hypervisor that put the two on one core takes them apart again.
		if ctx.Err() != nil || time.Now().After(end) {
			return fmt.Errorf("%w: the other CPU is on the same core", ErrDisturbed)
		}
	}
}

// occupy keeps a CPU busy until stop is called.
func occupy(cpu int) (stop func() error, err error) {
	var done atomic.Bool
	started := make(chan struct{})
	ended := make(chan error, 1)
	go func() {
		ended <- Pinned(cpu, func() {
			close(started)
			for !done.Load() {
				spin(probeLoops / 10)
			}
		})
	}()

	select {
	case <-started:
		return func() error {
			done.Store(true)
			return <-ended
		}, nil
	case err := <-ended:
		return nil, err
	}
}

// lowest returns the lowest cost of a few probes: company comes and goes.
func (s *stillness) lowest() (int64, error) {
	least := int64(math.MaxInt64)
	for range 8 {
		cost, err := s.probe()
		if err != nil {
			return 0, err
		}
		least = min(least, cost)
	}
	return least, nil
}

// spin runs n rounds of additions that do not wait for one another.
//
//go:noinline
func spin(n int) uint64 {
	a, b, c, d, e, f := uint64(1), uint64(2), uint64(3), uint64(4), uint64(5), uint64(6)
	for i := range uint64(n) {
		a += i ^ 3
		b ^= a + 1
		c += 7
		d ^= i
		e += d & 1
		f -= 9
		c ^= 5
		f ^= 3
	}
	return a ^ b ^ c ^ d ^ e ^ f
}
