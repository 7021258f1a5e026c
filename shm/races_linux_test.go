package shm

import (
	"context"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/flowtally/flowtally/internal/lab/seed"
)

// headerOpens is how many opens TestHeaderRaces makes.
func headerOpens(t *testing.T) int {
	if env := os.Getenv("FLOWTALLY_HEADER_OPENS"); env != "" {
		n, err := strconv.ParseFloat(env, 64)
		if err != nil || n < 1 {
			t.Fatalf("FLOWTALLY_HEADER_OPENS=%q is no number of opens", env)
		}
		return int(n)
	}
	if testing.Short() {
		return 1000
	}
	return 20000
}

// The owner of a file changes the words of its header all the time while a reader opens it
// and does all that it can: no panic, no fault. What was validated is not read again.
func TestHeaderRaces(t *testing.T) {
	path := mirrorPath(t)
	w, err := Create(Options{Path: path, History: 4, CoolDown: -1})
	if err != nil {
		t.Fatal(err)
	}
	hs := append(addN(t, w, 70, false), addN(t, w, 2, true)...)
	publishAll(w, hs, func(Handle) Value { return patterned(1) }, func() { w.AppendHistory(hs[0], patterned(1)) })
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	m, err := mapFile(f, 0, headerSize, true)
	if err != nil {
		t.Fatal(err)
	}
	h, err := overlayHeader(m.b)
	if err != nil {
		t.Fatal(err)
	}
	rnd := seed.Rand(t)
	var done atomic.Bool
	var wg sync.WaitGroup
	wg.Go(func() { liar(h, rand.New(rand.NewPCG(rnd.Uint64(), 1)), &done) })
	opened := 0
	for range headerOpens(t) {
		r, err := Open(path, ReaderOptions{})
		if err != nil {
			continue
		}
		opened++
		useAll(r, hs)
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
	done.Store(true)
	wg.Wait()
	runtime.KeepAlive(m)
	if opened == 0 {
		t.Error("no file was ever opened")
	}
	t.Logf("%d opened", opened)
}

// liar changes words that a reader validates, and those that it uses, to what another file
// may say, with a right checksum at times.
func liar(h *headerMem, rnd *rand.Rand, done *atomic.Bool) {
	good := h.fixedMem
	lies := []uint32{0, 1, 2, 4, 1 << 10, maxSegments, maxSegments + 1, 1 << 28, 1<<32 - 1}
	lie := func() uint32 { return lies[rnd.IntN(len(lies))] }
	for !done.Load() {
		switch rnd.IntN(8) {
		case 0:
			other := good
			other.history = lie()
			atomic.StoreUint64(&h.checksum, other.sum())
			atomic.StoreUint32(&h.history, other.history)
		case 1:
			atomic.StoreUint32(&h.history, lie())
		case 2:
			atomic.StoreUint32(&h.segments, lie())
		case 3:
			atomic.StoreUint32(&h.table[rnd.IntN(4)].kind, uint32(rnd.IntN(4)))
		case 4:
			atomic.StoreUint32(&h.table[rnd.IntN(4)].high, lie())
		case 5:
			atomic.StoreUint64(&h.historyTail, rnd.Uint64()>>(rnd.IntN(64)))
			atomic.StoreUint64(&h.historyIntent, rnd.Uint64()>>(rnd.IntN(64)))
		case 6:
			atomic.StoreUint64(&h.replaced, uint64(rnd.IntN(8)/7))
		default: // the truth, for a while
			copyWords(words(&h.fixedMem), words(&good))
			atomic.StoreUint32(&h.segments, 2)
			atomic.StoreUint32(&h.table[0].kind, kindBlocks)
			atomic.StoreUint32(&h.table[1].kind, kindRecords)
			for range rnd.IntN(2000) {
				if done.Load() {
					return
				}
			}
		}
	}
	copyWords(words(&h.fixedMem), words(&good))
}

// useAll calls every method of a reader.
func useAll(r *Reader, hs []Handle) {
	_, _ = r.Lookup("cfalse-3")
	_, _ = r.Entries()
	_, _ = r.Find("cfalse-3")
	_ = r.Status()
	ended, end := context.WithCancel(context.Background())
	end()
	var all Snapshot
	_ = r.Snapshot(&all)
	_ = r.SnapshotOf(new(Snapshot), hs)
	for _, h := range append(hs[:2:2], hs[70:]...) {
		_, _ = r.Entry(h)
		_, _ = all.Value(h)
		_, _ = r.Wait(ended, h, 1<<60)
		_ = Guard(func() error {
			c, err := r.Counter(h)
			if err == nil {
				_, err = c.Load()
			}
			return err
		})
	}
	if cur, err := r.History(); err == nil {
		cur.Rewind()
		_, _, _ = cur.Next(make([]Record, 8))
	}
}
