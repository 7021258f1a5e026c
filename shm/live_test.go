package shm

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
)

const (
	liveCPUs     = 3
	liveCounters = 8
	liveMap      = 7 // number of the map of these tests
)

// kernel counts in memory of the heap as the programs do.
type kernel struct{ words []uint64 }

// newKernel returns a kernel whose map r has mapped.
func newKernel(r *Reader) *kernel {
	k := &kernel{words: make([]uint64, liveCPUs*2*liveCounters+1)}
	atomic.StoreUint64(k.epoch(), 1)
	r.live = &liveFile{
		id: liveMap, counters: liveCounters, stride: 2 * liveCounters,
		words: k.words[:liveCPUs*2*liveCounters], epoch: k.epoch(),
	}
	return k
}

func (k *kernel) epoch() *uint64 { return &k.words[len(k.words)-1] }

func (k *kernel) slot(cpu, slot int) []uint64 { return k.words[2*(cpu*liveCounters+slot):][:2] }

// count counts packets of 64 bytes.
func (k *kernel) count(cpu, slot int, packets uint64) {
	s := k.slot(cpu, slot)
	atomic.AddUint64(&s[0], packets)
	atomic.AddUint64(&s[1], 64*packets<<8+packets)
}

// sum is a slot over all CPUs.
func (k *kernel) sum(slot int) (n uint64) {
	for cpu := range liveCPUs {
		n += k.slot(cpu, slot)[0]
	}
	return n
}

// from returns the place of a counter that begins at total where the slot stands now.
func (k *kernel) from(slot int, total uint64) LiveSlot {
	base := total - k.sum(slot)
	return LiveSlot{Map: liveMap, Epoch: uint32(atomic.LoadUint64(k.epoch())), Slot: uint32(slot), BasePackets: base, BaseBytes: 64 * base}
}

func mustSetLive(t testing.TB, w *Writer, h Handle, s LiveSlot) {
	t.Helper()
	if err := w.SetLive(h, s); err != nil {
		t.Fatal(err)
	}
}

func mustLive(t testing.TB, r *Reader, h Handle) Live {
	t.Helper()
	l, err := r.Live(h)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// Live returns the base plus the kernel's count, and an error once the slot may serve another counter.
func TestLiveReturnsTheKernelsCountOnTopOfItsBase(t *testing.T) {
	for _, tt := range []struct {
		name string
		then func(w *Writer, k *kernel, h Handle) error
		want uint64
		err  error
	}{
		{"nothing", func(*Writer, *kernel, Handle) error { return nil }, 110, nil},
		{"packets on each CPU", func(_ *Writer, k *kernel, _ Handle) error {
			for cpu := range liveCPUs {
				k.count(cpu, 2, uint64(cpu+1))
			}
			k.count(0, 1, 1000) // another counter's
			return nil
		}, 116, nil},
		{"another base", func(w *Writer, k *kernel, h Handle) error { return w.SetLive(h, k.from(2, 500)) }, 500, nil},
		{"another slot", func(w *Writer, k *kernel, h Handle) error {
			s := k.from(5, 110)
			k.count(2, 2, 1000)
			k.count(1, 5, 7)
			return w.SetLive(h, s)
		}, 117, nil},
		{"counted in hardware", func(w *Writer, _ *kernel, h Handle) error { return w.SetLive(h, LiveSlot{Slot: 2, BasePackets: 9}) }, 0, ErrNoLive},
		{"hardware and back", func(w *Writer, k *kernel, h Handle) error {
			return errors.Join(w.SetLive(h, LiveSlot{}), w.SetLive(h, k.from(2, 200)))
		}, 200, nil},
		{"removed", func(w *Writer, _ *kernel, h Handle) error { return w.Remove(h) }, 0, ErrGone},
		{"removed, and both places are another counter's", func(w *Writer, k *kernel, h Handle) error {
			before := k.from(2, 110)
			err := w.Remove(h)
			other, aerr := w.Add(Entry{Name: "other"})
			if other.Index != h.Index {
				return fmt.Errorf("the other counter has index %d, not %d", other.Index, h.Index)
			}
			return errors.Join(err, aerr, w.SetLive(other, before), w.SetLive(other, before))
		}, 0, ErrGone},
		{"another map", func(w *Writer, k *kernel, h Handle) error {
			s := k.from(2, 110)
			s.Map++
			return w.SetLive(h, s)
		}, 0, ErrNoLive},
		{"the next process has the map", func(_ *Writer, k *kernel, _ Handle) error { atomic.AddUint64(k.epoch(), 1); return nil }, 0, ErrNoLive},
		{"the next process has the map and has given the counter its slot", func(w *Writer, k *kernel, h Handle) error {
			atomic.AddUint64(k.epoch(), 1)
			return w.SetLive(h, k.from(2, 110))
		}, 110, nil},
		{"a slot behind the last", func(w *Writer, _ *kernel, h Handle) error {
			return w.SetLive(h, LiveSlot{Map: liveMap, Epoch: 1, Slot: liveCounters})
		}, 0, ErrFormat},
		{"given up", func(w *Writer, _ *kernel, h Handle) error {
			return errors.Join(w.v.giveUp(5), w.SetLive(h, LiveSlot{}))
		}, 0, ErrStale},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w, r := heapMirror(t, 64, 0, 0, Options{CoolDown: -1})
			k := newKernel(r)
			h := mustAdd(t, w, Entry{Name: "a"})
			k.count(1, 2, 30) // before the count began
			mustSetLive(t, w, h, k.from(2, 100))
			l := mustLive(t, r, h)
			k.count(0, 2, 10)
			if p, b, err := l.Load(); p != 110 || b != 110*64 || err != nil {
				t.Fatalf("%d packets, %d bytes, %v", p, b, err)
			}
			if err := tt.then(w, k, h); err != nil {
				t.Fatal(err)
			}
			for _, how := range []string{"again", "anew"} {
				p, b, err := l.Load()
				if how == "anew" {
					if l, err = r.Live(h); err == nil {
						p, b, err = l.Load()
					} else {
						p, b = 0, 0
					}
				}
				if !errors.Is(err, tt.err) || p != tt.want || b != 64*tt.want {
					t.Errorf("%s: %d packets, %d bytes, %v; want %d, %v", how, p, b, err, tt.want, tt.err)
				}
			}
		})
	}
}

// Giving a mirror up ends its Lives, even those that read nothing but the kernel's map.
func TestGivenUpMirrorHasNoLiveView(t *testing.T) {
	w, r := heapMirror(t, 64, 64, 0, Options{})
	k := newKernel(r)
	for _, latency := range []bool{false, true} {
		h := mustAdd(t, w, Entry{Name: fmt.Sprint(latency), Latency: latency})
		mustSetLive(t, w, h, k.from(1, 0))
		l := mustLive(t, r, h)
		if _, _, err := l.Load(); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if _, _, err := l.Load(); !errors.Is(err, ErrStale) {
				t.Errorf("latency %v: %v", latency, err)
			}
		}()
	}
	if err := w.v.giveUp(5); err != nil {
		t.Fatal(err)
	}
}

// A reader meets a slot between the kernel's two stores. Where stores become visible in order, it returns the count from
// before them. Elsewhere it gives up after a bounded number of tries.
func TestLiveReadsASlotBetweenItsTwoStores(t *testing.T) {
	w, r := heapMirror(t, 64, 0, 0, Options{})
	k := newKernel(r)
	h := mustAdd(t, w, Entry{Name: "a"})
	mustSetLive(t, w, h, k.from(2, 0))
	l := mustLive(t, r, h)
	k.count(1, 2, 250)
	k.slot(1, 2)[0] += 255
	p, b, err := l.Load()
	if storesInOrder && (p != 250 || b != 250*64 || err != nil) || !storesInOrder && !errors.Is(err, ErrBusy) {
		t.Errorf("%d packets, %d bytes, %v", p, b, err)
	}
}

// A writer is killed in the middle of a change. No reader waits for it, and the next writer ends the Live.
func TestLiveOfAKilledWriterEndsWithTheNextOne(t *testing.T) {
	w, r := heapMirror(t, 64, 0, 0, Options{})
	k := newKernel(r)
	h := mustAdd(t, w, Entry{Name: "a"})
	mustSetLive(t, w, h, k.from(2, 0))
	l := mustLive(t, r, h)
	e := w.v.slot(h.Index).entry()
	atomic.StoreUint64(&e.live, e.live|1<<32)
	if _, _, err := l.Load(); !errors.Is(err, ErrBusy) {
		t.Error(err)
	}
	w2, err := newWriter(Options{}.withDefaults(), w.v, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := l.Load(); !errors.Is(err, ErrNoLive) {
		t.Error(err)
	}
	mustSetLive(t, w2, h, k.from(2, 77))
	if p, _, err := l.Load(); p != 77 || err != nil {
		t.Error(p, err)
	}
}

// While packets are counted, a counter loses its slot to others and its base changes. A reader must get a total that the
// counter has had since the last read, or an error.
func TestLiveReturnsNoTotalOfAnotherCounter(t *testing.T) {
	const changes, step = 3000, 1 << 20 // step: from the base of one owner of a slot to the next one's
	w, r := heapMirror(t, 64, 0, 0, Options{CoolDown: -1})
	k := newKernel(r)
	h := mustAdd(t, w, Entry{Name: "a"})
	mustSetLive(t, w, h, k.from(0, 0))
	var stop atomic.Bool
	var busy, running sync.WaitGroup
	var owner [2]atomic.Bool // whether packets of slot 0 and 1 are the counter's
	var total atomic.Uint64  // of the counter, at least
	owner[0].Store(true)
	busy.Add(2)
	for range 2 {
		running.Go(func() {
			l := mustLive(t, r, h)
			var last, good uint64
			for !stop.Load() {
				least := max(total.Load(), last)
				p, b, err := l.Load()
				switch {
				case errors.Is(err, ErrNoLive), errors.Is(err, ErrBusy):
					continue
				case err != nil || p < least || p > step || b != 64*p:
					t.Errorf("%d packets, %d bytes, %v, after %d", p, b, err, least)
					stop.Store(true)
				}
				if last = p; good == 0 {
					busy.Done()
				}
				good++
			}
			if good == 0 {
				busy.Done()
			}
		})
	}
	busy.Wait()
	for i := 0; i < changes && !stop.Load(); i++ {
		from, to := i%2, (i+1)%2
		k.count(i%liveCPUs, from, 1)
		total.Store(total.Load() + 1)
		if i%3 == 0 {
			mustSetLive(t, w, h, LiveSlot{})
		}
		mustSetLive(t, w, h, k.from(to, total.Load()))
		k.count(i%liveCPUs, from, step+uint64(i)) // packets of the next owner
	}
	stop.Store(true)
	running.Wait()
	if n := total.Load(); n != changes {
		t.Errorf("%d packets were counted", n)
	}
}
