package bench

import (
	"context"
	"time"
)

// Side runs n operations, at least 1, and returns the cost of one, in nanoseconds of the clock that the row is about.
// Run calls it on a thread that is locked and pinned to [Env].CPU.
type Side func(ctx context.Context, n int) (float64, error)

// Row is one line of the report: a figure of ours against a floor or a peer. It holds no resource until Prepare or
// Open.
type Row struct {
	// Name is stable: "shm.read".
	Name string
	// Ours says what is measured, for docs/performance.md: "a counter read".
	Ours string
	// Ref names the side that Ours is compared with: "3 atomic loads". Figures that were kept against another reference
	// are not shown any more (package keep).
	Ref string
	// Bound is the highest ratio ours/ref allowed. 0: the row has no bound.
	Bound float64
	// Unit of the operation, for people: "ns per snapshot". Empty: "ns".
	Unit string
	// Full: the short form leaves the row out, unless its name is asked for.
	Full bool
	// Peers names the programs of others that the row compares with. It is measured with [Options].Peers alone.
	Peers string
	// Rounds is the most that an attempt makes, and at least 7: for rounds that take long. 0: [Options].Rounds.
	Rounds int
	// Openings of the row in an attempt. 0: [Options].Openings.
	Openings int
	// Time replaces [Options].RowTime where that is less.
	Time time.Duration
	// Prepare makes objects that several rows share, unless they exist. It runs before the row's time
	// begins; after an error the row is not measured, as after one of Open. May be nil.
	Prepare func(ctx context.Context) error
	// Open acquires the resources of the row and returns its sides. After an error the row is not measured, for that
	// reason; the others still run.
	Open func(ctx context.Context, env Env) (*Sides, error)
	// Release ends the objects that Prepare made. Run calls it when it ends, once for each row that has
	// one, so it is idempotent. May be nil.
	Release func() error
}

// Sides is an opened row. Every round runs all sides, one after the other, in an
// order that reverses from one round to the next.
type Sides struct {
	Ours, Ref Side
	// Base, when not nil, is taken off both: the figures are costs above it,
	// each from the same round.
	Base Side
	// Resolution is the least cost above Base that either side is said to have, as a share of Base. A wide core hides a few
	// instructions entirely, and a ratio of two costs below the noise of Base means nothing. 0: a side that costs no more
	// than Base spoils the round.
	Resolution float64
	// N fixes the operations per round. 0: as many for each side as fill [Options].RoundTime.
	N int
	// Turns that each side takes in a round; its cost is the lower quartile of them. 0 means 1.
	Turns int
	// Apart: the row is about two cores. A round runs again if the two CPUs were threads of one.
	Apart bool
	// Paced: the sides wait for a timer most of the time, or another process does the work. Nobody looks for company
	// on the core.
	Paced bool
	// MaxSpread replaces [Options].MaxSpread where a row is by nature wider.
	MaxSpread float64
	// Close releases the resources that Open acquired. May be nil.
	Close func() error
}

// Env holds the CPUs and the directory that a row may use.
type Env struct {
	// CPU that the sides run on.
	CPU int
	// Peer is another CPU for a second thread or process, -1 when this process may run on one CPU only.
	Peer int
	// Dir is a directory for temporary files that goes away after the run. It
	// need not be on tmpfs.
	Dir string
}

// Timed makes a Side of a loop: clock is read once before it and once after.
func Timed(clock Clock, loop func(n int)) Side {
	return func(_ context.Context, n int) (float64, error) {
		t0, err := clock()
		if err != nil {
			return 0, err
		}
		loop(n)
		t1, err := clock()
		if err != nil {
			return 0, err
		}
		return float64(t1-t0) / float64(n), nil
	}
}

// Above is the cost of s above base, where [Sides].Base is not the base of both sides. Half of base runs before s and
// half behind it, so that a drift of the clock rate falls on both alike.
func Above(s, base Side) Side {
	return func(ctx context.Context, n int) (float64, error) {
		before, err := base(ctx, max(1, n/2))
		if err != nil {
			return 0, err
		}
		ns, err := s(ctx, n)
		if err != nil {
			return 0, err
		}
		behind, err := base(ctx, max(1, n/2))
		return ns - (before+behind)/2, err
	}
}

// Fewer makes a side of n operations one of n/by, for a side that takes much longer than those beside it.
func Fewer(by int, s Side) Side {
	return func(ctx context.Context, n int) (float64, error) { return s(ctx, max(1, n/by)) }
}

// Clock returns nanoseconds from a fixed point.
type Clock func() (int64, error)
