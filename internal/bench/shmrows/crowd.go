package shmrows

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/flowtally/flowtally/internal/bench"
	"github.com/flowtally/flowtally/internal/bench/cside"
	"github.com/flowtally/flowtally/probe"
	"github.com/flowtally/flowtally/shm"
)

//go:embed src/crowd.c
var crowdC []byte

//go:embed src/hostile.c
var hostileC []byte

const (
	crowdProcesses = 8
	crowdThreads   = 500
	pacedCycles    = 6  // of one side in a round
	crowdCycles    = 20 // the same, where a round begins with a change of 4,000 sleepers
	cyclePeriod    = 10 * time.Millisecond
)

// openCrowd: poll cycles at the default period while 4,000 threads of other processes sleep
// until the counter has a value that it does not reach, against the same threads asleep on a
// futex of their own. Wall time of a cycle.
func openCrowd(ctx context.Context, env bench.Env) (*bench.Sides, error) {
	return bench.Acquire(func(open *bench.Closers) (*bench.Sides, error) {
		c, err := newCrowd(ctx, open, env, 0, crowdProcesses, crowdThreads)
		if err != nil {
			return nil, err
		}
		side := func(where string) bench.Side {
			return func(ctx context.Context, n int) (float64, error) {
				if err := c.gather(ctx, where); err != nil {
					return 0, err
				}
				return paced(c.cycle, n), nil
			}
		}
		return &bench.Sides{
			N:     crowdCycles,
			Ours:  side("ours"),
			Ref:   side("own"),
			Paced: true,
		}, nil
	})
}

// openMember: poll cycles at the default period with some sleepers, while a member of the
// group runs the tries of hostile.c without a pause, against the same while it does
// nothing. Wall time of a cycle.
func openMember(ctx context.Context, env bench.Env) (*bench.Sides, error) {
	const group, user = 54321, 54322
	if os.Geteuid() != 0 {
		return nil, &probe.UnsupportedError{Feature: "another user", Reason: "not root", Fix: "run the bench as root"}
	}
	return bench.Acquire(func(open *bench.Closers) (*bench.Sides, error) {
		c, err := newCrowd(ctx, open, env, group, 1, 2)
		if err != nil {
			return nil, err
		}
		if err := os.Chmod(filepath.Dir(c.m.path), 0o755); err != nil {
			return nil, fmt.Errorf("letting another user in: %w", err)
		}
		bin, err := compile(ctx, env.Dir, "hostile", hostileC)
		if err != nil {
			return nil, err
		}
		member, err := cside.Start(open, bin, c.m.path, strings.TrimSuffix(c.m.path, ".mirror")+".wait", strconv.Itoa(user), strconv.Itoa(group), "/dev/shm")
		if err != nil {
			return nil, err
		}
		if err := c.gather(ctx, "ours"); err != nil {
			return nil, err
		}
		beside := func(_ context.Context, n int) (float64, error) {
			before, err := member.Ask("begin", 0)
			if err != nil {
				return 0, err
			}
			took := paced(c.cycle, n)
			after, err := member.Ask("end", 0)
			if err == nil && after == before {
				err = bench.ErrDisturbed // it was not on a CPU
			}
			return took, err
		}
		alone := func(_ context.Context, n int) (float64, error) { return paced(c.cycle, n), nil }
		return &bench.Sides{
			N:     pacedCycles,
			Ours:  beside,
			Ref:   alone,
			Paced: true,
		}, nil
	})
}

// crowd is a mirror, and threads of other processes that sleep.
type crowd struct {
	m       *mirror
	program *cside.Program
	threads int
	counted uint64 // the value of the counter
}

func newCrowd(ctx context.Context, open *bench.Closers, env bench.Env, group, processes, threads int) (*crowd, error) {
	bin, err := compile(ctx, env.Dir, "crowd", crowdC)
	if err != nil {
		return nil, err
	}
	m, err := newMirrorFor(open, shm.BlockLen, 0, group)
	if err != nil {
		return nil, err
	}
	p, err := cside.Start(open, bin, m.path, "c0", strconv.Itoa(processes), strconv.Itoa(threads))
	if err != nil {
		return nil, err
	}
	return &crowd{m: m, program: p, threads: processes * threads, counted: 1}, nil
}

// gather has all threads sleep: "ours" until the counter shows more, "own" on a futex of theirs.
func (c *crowd) gather(ctx context.Context, where string) error {
	if where == "own" {
		c.counted++ // the value that ends the sleep of "ours"
	}
	for asleep := 0; asleep < c.threads; {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("putting %d threads to sleep: %w", c.threads, err)
		}
		n, err := c.program.Ask(where, int(c.counted+1))
		if err != nil {
			return err
		}
		asleep = int(n)
		paced(c.cycle, 1)
	}
	paced(c.cycle, 2) // the last of them fall asleep
	return nil
}

func (c *crowd) cycle() {
	values := block(c.counted)
	c.m.w.BeginCycle()
	c.m.w.PublishBlock(0, &values)
	c.m.w.EndCycle(shm.Now())
}

// paced makes n cycles as the poller does, on a thread that is not pinned, and returns the
// ns of one: a ticker drops the ticks that were not received.
func paced(cycle func(), n int) float64 {
	took := make(chan time.Duration)
	go func() {
		tick := time.NewTicker(cyclePeriod)
		defer tick.Stop()
		start := time.Now()
		for range n {
			<-tick.C
			cycle()
		}
		took <- time.Since(start)
	}()
	return float64(<-took) / float64(n)
}
