package queuerows

import (
	"context"
	"encoding/binary"
	"fmt"
	"syscall"

	"github.com/flowtally/flowtally/ibv/flexio"
	"github.com/flowtally/flowtally/internal/bench"
)

// Rows returns the row. It holds no resource until opened.
func Rows() []bench.Row {
	return []bench.Row{{
		Name:  "queue.collapsed",
		Ours:  "64 completions counted from the one entry of a collapsed queue (`Collapsed.SampleUpTo`)",
		Ref:   "a walk over their 64 entries in a ring (`Ring.Next`)",
		Bound: 0.2,
		Unit:  "ns per 64 completions",
		Open:  openCollapsed,
	}}
}

const (
	batch     = 64 // completions of an operation
	entrySize = 64 // bytes
	ringLen   = 4096
)

func openCollapsed(context.Context, bench.Env) (*bench.Sides, error) {
	return bench.Acquire(func(open *bench.Closers) (*bench.Sides, error) {
		mem, err := syscall.Mmap(-1, 0, (1+ringLen)*entrySize, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
		if err != nil {
			return nil, fmt.Errorf("mapping the entries: %w", err)
		}
		open.Add(func() error { return syscall.Munmap(mem) })
		entry, ring := mem[:entrySize], mem[entrySize:]
		queue, err := flexio.NewCollapsed(entry, flexio.CollapsedOptions{})
		if err != nil {
			return nil, err
		}
		queue.Init()
		one := &oneEntry{entry: entry, queue: queue}
		// Zeros are entries of sends, written by the device in its first pass.
		all := &ringWalk{mem: ring}
		if err := all.begin(); err != nil {
			return nil, err
		}
		return &bench.Sides{
			Ours: one.side(),
			Ref:  all.side(),
		}, nil
	})
}

// oneEntry is a collapsed queue and its device.
type oneEntry struct {
	entry  []byte
	queue  *flexio.Collapsed
	posted uint64
}

func (q *oneEntry) side() bench.Side {
	posted := func() uint64 { return q.posted }
	timed := bench.Timed(bench.ThreadCPU, func(n int) {
		for range n {
			q.posted += batch
			binary.BigEndian.PutUint16(q.entry[60:], uint16(q.posted-1))
			q.queue.SampleUpTo(posted)
		}
	})
	return func(ctx context.Context, n int) (float64, error) {
		ns, err := timed(ctx, n)
		if got := q.queue.SampleUpTo(posted); err == nil && (got.Completed != q.posted || got.Ambiguous) {
			err = fmt.Errorf("the entry counts %+v of %d completions", got, q.posted)
		}
		return ns, err
	}
}

// ringWalk walks a ring in its first pass again and again: the device would have to write the entries for a second one.
type ringWalk struct {
	mem   []byte
	ring  *flexio.Ring
	left  int // entries of the pass
	entry flexio.CQE64
	found uint64
	err   error
}

func (w *ringWalk) begin() (err error) {
	w.ring, err = flexio.NewRing(w.mem, flexio.RingOptions{EntrySize: entrySize})
	w.left = ringLen
	return err
}

func (w *ringWalk) side() bench.Side {
	timed := bench.Timed(bench.ThreadCPU, func(n int) {
		for range n {
			if w.left == 0 {
				w.err = w.begin()
			}
			for range batch {
				found, err := w.ring.Next(&w.entry)
				if err != nil {
					w.err = err
				}
				if found {
					w.found++
				}
			}
			w.left -= batch
		}
	})
	return func(ctx context.Context, n int) (float64, error) {
		before := w.found
		ns, err := timed(ctx, n)
		if err == nil {
			err = w.err
		}
		if got := w.found - before; err == nil && got != uint64(n)*batch {
			err = fmt.Errorf("the walk has found %d entries of %d", got, uint64(n)*batch)
		}
		return ns, err
	}
}
