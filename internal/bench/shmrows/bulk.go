package shmrows

import (
	"context"
	"fmt"

	"github.com/flowtally/flowtally/internal/bench"
	"github.com/flowtally/flowtally/shm"
)

const (
	// The copied bytes nearly fill a second-level cache (1 MiB here), so that the
	// time depends on which physical pages the kernel gave: the ratio was 1.12 to
	// 1.30 from one process to the next. Rounds take turns over this many.
	placements = 8
	// The snapshots are of a mirror that has lived: so many counters were removed and added.
	churned = 1000
)

// openSnapshot16k and openSnapshot256k: a labelled snapshot of so many counters into one that
// was filled before, against Go's copy of as many values from heap to heap. The snapshot
// also copies 64 bytes of label per block, and its source is the mapping.
//
// A block is what a writer publishes at once, so no reader can copy more at once. Within the
// second-level cache that shows: the copy of 16,384 values in one piece takes a fifth less time
// on a Zen 5.
func openSnapshot16k(context.Context, bench.Env) (*bench.Sides, error) {
	return openSnapshot(16384, placements, shm.BlockLen)
}

func openSnapshot256k(context.Context, bench.Env) (*bench.Sides, error) {
	return openSnapshot(262144, 1, 262144)
}

func openSnapshot(counters, placements, piece int) (*bench.Sides, error) {
	return bench.Acquire(func(open *bench.Closers) (*bench.Sides, error) {
		snaps, mirrors := make([]shm.Snapshot, placements), make([]*mirror, placements)
		from, to := make([][]shm.Value, placements), make([][]shm.Value, placements)
		for i := range placements {
			m, err := newMirror(open, counters, 0)
			if err != nil {
				return nil, err
			}
			if err := m.churn(churned); err != nil {
				return nil, err
			}
			if err := m.r.Snapshot(&snaps[i]); err != nil {
				return nil, err
			}
			if s := &snaps[i]; !s.SameCycle || s.Sampled != counters/shm.BlockLen {
				return nil, fmt.Errorf("snapshot: label %+v: %w", s.Label, bench.ErrDisturbed)
			}
			mirrors[i], from[i], to[i] = m, make([]shm.Value, counters), make([]shm.Value, counters)
			for j := range from[i] {
				from[i][j] = value(uint64(j))
			}
		}
		taken := 0
		take := func(_ context.Context, n int) (float64, error) {
			r, snap := mirrors[taken%placements].r, &snaps[taken%placements]
			taken++
			var err error
			ns, _ := bench.Timed(bench.ThreadCPU, func(n int) {
				for range n {
					if err = r.Snapshot(snap); err != nil {
						return
					}
				}
			})(nil, n)
			return ns, err
		}
		copied := 0
		return &bench.Sides{
			Ours: take,
			Ref: bench.Timed(bench.ThreadCPU, func(n int) {
				to, from := to[copied%placements], from[copied%placements]
				copied++
				for range n {
					for at := 0; at < counters; at += piece {
						copy(to[at:at+piece], from[at:at+piece])
					}
				}
			}),
		}, nil
	})
}

// openPublish: PublishBlock of one block again and again, against Go's copy of
// its values. The other words that a publish writes are part of its cost.
func openPublish(context.Context, bench.Env) (*bench.Sides, error) {
	return bench.Acquire(func(open *bench.Closers) (*bench.Sides, error) {
		m, err := newMirror(open, shm.BlockLen, 0)
		if err != nil {
			return nil, err
		}
		// The cost of a store depends on how far it lies from the loads around it
		// modulo the page (4 KiB aliasing: 17 ns or 31 here), which is the
		// allocator's choice: take turns over eight sources that cover the page.
		var from [8]struct {
			shm.Block
			_ [1024]byte
		}
		for i := range from {
			from[i].Block = block(uint64(i + 2))
		}
		to := new(shm.Block)
		return &bench.Sides{
			Ours: bench.Timed(bench.ThreadCPU, func(n int) {
				m.w.BeginCycle()
				for i := range n {
					m.w.PublishBlock(0, &from[i%len(from)].Block)
				}
				m.w.EndCycle(shm.Now())
			}),
			Ref: bench.Timed(bench.ThreadCPU, func(n int) {
				for i := range n {
					copyOut(to, &from[i%len(from)].Block)
				}
			}),
		}, nil
	})
}

//go:noinline
func copyOut(to, from *shm.Block) { copy(to[:], from[:]) }
