package pollrows

import (
	"context"
	"fmt"
	"path/filepath"
	"sync/atomic"

	"github.com/flowtally/flowtally/dataplane/engine/live"
	"github.com/flowtally/flowtally/internal/bench"
	"github.com/flowtally/flowtally/shm"
	"github.com/flowtally/flowtally/xdp"
)

// openLive: Live.Load of a counter of the kernel, which counts nothing meanwhile, against bare atomic loads of as many
// words at the same distances: two for each CPU, and the two that tell whether the slot is the counter's.
func openLive(context.Context, bench.Env) (*bench.Sides, error) {
	return bench.Acquire(func(open *bench.Closers) (*bench.Sides, error) {
		_, counters, m, err := liveCounters(open, 1)
		if err != nil {
			return nil, err
		}
		l := &counters[0].live
		bare := &bareSlots{words: make([]uint64, m.CPUs*m.Stride/8), stride: m.Stride / 8, state: new(uint64), epoch: new(uint64)}
		sink := new(uint64)
		return &bench.Sides{
			Ours: bench.Timed(bench.ThreadCPU, func(n int) { *sink = loadLive(l, n) }),
			Ref:  bench.Timed(bench.ThreadCPU, func(n int) { *sink = loadBare(bare, n) }),
		}, nil
	})
}

// liveCounter is a counter in the kernel that the mirror shows.
type liveCounter struct {
	id   uint32
	live shm.Live
}

// apart is how many counters lie between two of the rows, so that no two have words on neighbouring cache lines.
const apart = 8

// liveCounters makes n counters in the kernel, and a mirror that shows where they are.
func liveCounters(open *bench.Closers, n int) (*xdp.Datapath, []liveCounter, shm.LiveMap, error) {
	fail := func(err error) (*xdp.Datapath, []liveCounter, shm.LiveMap, error) {
		return nil, nil, shm.LiveMap{}, err
	}
	rules, err := xdp.Open(xdp.Options{MaxRules: 4096})
	if err != nil {
		return fail(err)
	}
	open.Add(rules.Destroy)
	of, err := rules.LiveMap()
	if err != nil {
		return fail(err)
	}
	dir, err := open.MirrorDir()
	if err != nil {
		return fail(err)
	}
	path := filepath.Join(dir, "bench.mirror")
	w, err := shm.Create(shm.Options{Path: path, History: -1})
	if err != nil {
		return fail(err)
	}
	open.Add(w.Close)
	m := shm.LiveMap{FD: of.FD, ID: of.ID, CPUs: of.CPUs, Counters: of.Counters, Stride: of.Stride}
	socket, err := live.Listen(live.Options{Path: shm.LivePath(path), Map: m, Mode: 0o600})
	if err != nil {
		return fail(err)
	}
	open.Add(socket.Close)
	r, err := shm.OpenReader(path)
	if err != nil {
		return fail(err)
	}
	open.Add(r.Close)
	counters := make([]liveCounter, n)
	for i := range counters {
		if counters[i], err = newLiveCounter(rules, of, w, r, i); err != nil {
			return fail(err)
		}
	}
	return rules, counters, m, nil
}

// newLiveCounter makes counter i, and as many behind it as lie between two.
func newLiveCounter(rules *xdp.Datapath, of xdp.LiveMap, w *shm.Writer, r *shm.Reader, i int) (c liveCounter, err error) {
	for j := range apart {
		k, err := rules.AllocCounter(fmt.Sprintf("live%d.%d", i, j))
		if err != nil {
			return c, err
		}
		if j == 0 {
			c.id = k.ID
		}
	}
	h, err := w.Add(shm.Entry{Name: fmt.Sprintf("live%d", i)})
	if err != nil {
		return c, err
	}
	if err := w.SetLive(h, shm.LiveSlot{Map: of.ID, Epoch: uint32(of.Epoch), Slot: c.id}); err != nil {
		return c, err
	}
	c.live, err = r.Live(h)
	return c, err
}

//go:noinline
func loadLive(l *shm.Live, n int) (sum uint64) {
	for range n {
		packets, bytes, err := l.Load()
		if err != nil {
			return 0
		}
		sum += packets + bytes
	}
	return sum
}

// bareSlots is a counter as it would be if no read could be torn and no slot reused.
type bareSlots struct {
	words        []uint64
	stride       int
	state, epoch *uint64
}

// load is the loads of Live.Load, each once, called as that is.
//
//go:noinline
func (b *bareSlots) load() (packets, bytes uint64) {
	for at := 0; at+1 < len(b.words); at += b.stride {
		packets += atomic.LoadUint64(&b.words[at])
		bytes += atomic.LoadUint64(&b.words[at+1])
	}
	return packets + atomic.LoadUint64(b.state), bytes + atomic.LoadUint64(b.epoch)
}

//go:noinline
func loadBare(b *bareSlots, n int) (sum uint64) {
	for range n {
		packets, bytes := b.load()
		sum += packets + bytes
	}
	return sum
}
