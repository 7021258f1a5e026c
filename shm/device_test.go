package shm

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// heapDevice gives the heap mirror of w and r a device segment on the heap.
func heapDevice(t testing.TB, w *Writer, r *Reader, slots int) *DeviceSegment {
	t.Helper()
	m := &mapping{b: make([]byte, deviceLength(uint32(slots)))}
	seg, err := w.newDeviceSegment(m, uint32(slots), time.Now().UnixNano())
	if err != nil {
		t.Fatal(err)
	}
	seg.v.ready()
	w.mu.Lock()
	w.useDevice(seg)
	w.mu.Unlock()
	r.device = &deviceFile{m: m, v: seg.v}
	return seg
}

func mustSlot(t testing.TB, seg *DeviceSegment) *DeviceSlot {
	t.Helper()
	s, err := seg.Slot()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func mustDevice(t testing.TB, r *Reader, h Handle) *Device {
	t.Helper()
	d, err := r.Device(h)
	if err != nil {
		t.Fatal(err)
	}
	return &d
}

// count acts as a device: it adds to a word, which wraps around after limit.
func (s *deviceSlotMem) count(which int, n, limit uint64) {
	word := atomic.LoadUint64(&s.words[which])
	if limit == math.MaxUint64 {
		word += n
	} else {
		sum := new(big.Int).Add(new(big.Int).SetUint64(word), new(big.Int).SetUint64(n))
		word = sum.Mod(sum, new(big.Int).Add(new(big.Int).SetUint64(limit), big.NewInt(1))).Uint64()
	}
	atomic.StoreUint64(&s.words[which], word)
}

func wantDevice(t testing.TB, d *Device, comp, errs uint64) {
	t.Helper()
	gotComp, gotErrs, err := d.Load()
	if gotComp != comp || gotErrs != errs || err != nil {
		t.Errorf("device reads %d and %d, want %d and %d, %v", gotComp, gotErrs, comp, errs, err)
	}
}

func TestDeviceTotalsFollowTheirWords(t *testing.T) {
	w, r := heapMirror(t, 64, 1, 0, Options{})
	h := mustAdd(t, w, Entry{Name: "a", Kind: "completion"})
	other := mustAdd(t, w, Entry{Name: "b", Kind: "completion", Latency: true})
	if _, err := r.Device(h); !errors.Is(err, ErrNoDevice) {
		t.Error(err)
	}
	seg := heapDevice(t, w, r, 2)
	if _, err := r.Device(h); !errors.Is(err, ErrNoDevice) {
		t.Error(err)
	}
	s := mustSlot(t, seg)
	if _, _, err := s.Rebase(); !errors.Is(err, ErrNoDevice) {
		t.Error(err)
	}
	if err := w.SetDevice(h, s, 1000, 10, 255); err != nil {
		t.Fatal(err)
	}
	d := mustDevice(t, r, h)
	wantDevice(t, d, 1000, 10)
	s.mem().count(completions, 200, 255)
	s.mem().count(failures, 3, 255)
	wantDevice(t, d, 1200, 13)
	if comp, errs, err := s.Rebase(); comp != 1200 || errs != 13 || err != nil {
		t.Error(comp, errs, err)
	}
	s.mem().count(completions, 200, 255) // comes round, after the rebase
	wantDevice(t, d, 1400, 13)

	// The bytes that a device is given are the words that readers read.
	comp, errWord := s.Words()
	if len(comp) != 8 || len(errWord) != 8 || cap(comp) != 8 || &comp[0] != &seg.v.b[deviceHeaderSize] || &errWord[0] != &seg.v.b[deviceHeaderSize+8] {
		t.Error("the words are elsewhere")
	}

	// One slot, one counter; one counter, one slot.
	if err := w.SetDevice(other, s, 0, 0, 255); !errors.Is(err, ErrExists) {
		t.Error(err)
	}
	s2 := mustSlot(t, seg)
	if _, err := seg.Slot(); !errors.Is(err, ErrFull) {
		t.Error(err)
	}
	if all, taken := seg.Slots(); all != 2 || taken != 2 {
		t.Error(all, taken)
	}
	if err := w.SetDevice(h, s2, 1400, 13, math.MaxUint64); err != nil {
		t.Fatal(err)
	}
	if _, _, err := d.Load(); !errors.Is(err, ErrNoDevice) {
		t.Error(err)
	}
	d = mustDevice(t, r, h)
	s2.mem().count(completions, 1<<40, math.MaxUint64)
	wantDevice(t, d, 1400+1<<40, 13)

	// The same words, set anew: another base, which is of the words as they are.
	if err := w.SetDevice(h, s2, 7, 8, math.MaxUint64); err != nil {
		t.Fatal(err)
	}
	if _, _, err := d.Load(); !errors.Is(err, ErrNoDevice) {
		t.Error(err)
	}
	d = mustDevice(t, r, h)
	s2.mem().count(completions, 5, math.MaxUint64)
	wantDevice(t, d, 12, 8)

	// Given back and given to another: the old reader does not see its words.
	s.Free()
	s.Free()
	s3 := mustSlot(t, seg)
	if s3.number != s.number || s3.mem().words != [2]uint64{} {
		t.Errorf("slot %d with words %v", s3.number, s3.mem().words)
	}
	if err := w.SetDevice(h, s, 0, 0, 255); !errors.Is(err, ErrInvalid) {
		t.Errorf("a slot that was given back: %v", err)
	}
	if err := w.SetDevice(other, s3, 5, 6, 0); !errors.Is(err, ErrInvalid) {
		t.Errorf("largest value 0: %v", err)
	}
	s3.mem().words[1] = 256
	if err := w.SetDevice(other, s3, 5, 6, 255); !errors.Is(err, ErrInvalid) {
		t.Errorf("a word above the largest value: %v", err)
	}
	s3.mem().words[1] = 0
	if err := w.SetDevice(other, s3, 5, 6, 255); err != nil {
		t.Fatal(err)
	}
	do := mustDevice(t, r, other)
	wantDevice(t, do, 5, 6)
	if err := w.ClearDevice(other); err != nil {
		t.Fatal(err)
	}
	if _, _, err := do.Load(); !errors.Is(err, ErrNoDevice) {
		t.Error(err)
	}

	// Removed: gone, and the slot serves no counter.
	if err := w.Remove(h); err != nil {
		t.Fatal(err)
	}
	if _, _, err := d.Load(); !errors.Is(err, ErrGone) {
		t.Error(err)
	}
	if _, err := r.Device(h); !errors.Is(err, ErrGone) {
		t.Error(err)
	}
	if _, _, err := s2.Rebase(); !errors.Is(err, ErrNoDevice) {
		t.Error(err)
	}
	s2.Free()
	if h2 := mustAdd(t, w, Entry{Name: "a2"}); w.v.slot(h2.Index).entry().slots[0].device != 0 {
		t.Error("a new counter has a device")
	}

	// A word above the device's largest value is an error, not a total.
	if err := w.SetDevice(other, s3, 5, 6, 255); err != nil {
		t.Fatal(err)
	}
	do = mustDevice(t, r, other)
	s3.mem().words[0] = 256
	if _, _, err := do.Load(); !errors.Is(err, ErrFormat) {
		t.Error(err)
	}
	if _, _, err := s3.Rebase(); !errors.Is(err, ErrFormat) {
		t.Error(err)
	}
	s3.mem().words[0] = 0
}

// For any limit and any base, the total of a word is exact as long as Rebase is
// called at least once per round.
func TestDeviceTotalIsExactOverWraps(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.OneOf(
			rapid.SampledFrom([]uint64{1, 2, 255, 256, 1<<16 - 1, 1<<32 - 1, 1 << 32, 1<<53 - 1, 1 << 63, 1<<64 - 2, 1<<64 - 1}),
			rapid.Uint64Range(1, 1<<64-1)).Draw(t, "limit")
		total := rapid.Uint64().Draw(t, "total")
		word := rapid.Uint64Range(0, limit).Draw(t, "word")
		s := &DeviceSlot{seg: &DeviceSegment{w: &Writer{}, v: &deviceView{slots: make([]deviceSlotMem, 1)}}}
		m := s.mem()
		m.words[completions] = word
		if err := s.fill(Handle{}, total, 0, limit); err != nil {
			t.Fatal(err)
		}
		since := uint64(0) // counted since a rebase may have been the last
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			n := rapid.Uint64Range(0, (limit-min(since, limit))).Draw(t, "n")
			if rapid.Bool().Draw(t, "few") {
				n = min(n, 3)
			}
			n = min(n, math.MaxUint64-total) // a total itself never comes round
			m.count(completions, n, limit)
			total += n
			since += n
			if rapid.Bool().Draw(t, "rebase") {
				got, _, err := s.Rebase()
				if got != total || err != nil {
					t.Fatalf("rebased to %d, want %d, %v", got, total, err)
				}
				since = total - m.seen[completions]
				if since > limit/4 {
					t.Fatalf("%d counted, and not noted", since)
				}
			}
			if got, err := m.total(&m.words, completions); got != total || err != nil {
				t.Fatalf("total %d, want %d, %v", got, total, err)
			}
		}
	})
}

// The writer changes the slot between any two loads of a reader. The reader must notice and try again, or
// return an error.
func TestDeviceLoadRetriesIfTheWriterCameBetweenTwoLooks(t *testing.T) {
	setUp := func(t *testing.T) (w *Writer, r *Reader, hs []Handle, s *DeviceSlot) {
		w, r = heapMirror(t, 64, 0, 0, Options{})
		hs = addN(t, w, 2, false)
		s = mustSlot(t, heapDevice(t, w, r, 2))
		if err := w.SetDevice(hs[0], s, 100, 0, 255); err != nil {
			t.Fatal(err)
		}
		return w, r, hs, s
	}
	t.Run("the word came round", func(t *testing.T) {
		_, _, _, s := setUp(t)
		m := s.mem()
		seen := m.seen[completions]
		m.count(completions, 60, 255)
		if _, _, err := s.Rebase(); err != nil {
			t.Fatal(err)
		}
		if total, ok, err := m.above(&m.words, seen, completions); total != 160 || !ok || err != nil {
			t.Error(total, ok, err)
		}
		for range 4 {
			m.count(completions, 60, 255)
			if _, _, err := s.Rebase(); err != nil {
				t.Fatal(err)
			}
		}
		if total, ok, _ := m.above(&m.words, seen, completions); ok {
			t.Errorf("%d counted by a base that is worth nothing any more", total)
		}
	})
	for name, change := range map[string]func(w *Writer, hs []Handle, s *DeviceSlot) error{
		"the words were taken away": func(w *Writer, hs []Handle, s *DeviceSlot) error { return w.ClearDevice(hs[0]) },
		"the counter was removed":   func(w *Writer, hs []Handle, s *DeviceSlot) error { return w.Remove(hs[0]) },
		"others were given": func(w *Writer, hs []Handle, s *DeviceSlot) error {
			other, err := w.device.Slot()
			return errors.Join(err, w.SetDevice(hs[0], other, 0, 0, 255))
		},
		"the base was set anew": func(w *Writer, hs []Handle, s *DeviceSlot) error { return w.SetDevice(hs[0], s, 0, 0, 255) },
		"another counter has them": func(w *Writer, hs []Handle, s *DeviceSlot) error {
			return errors.Join(w.ClearDevice(hs[0]), w.SetDevice(hs[1], s, 0, 0, 255))
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, r, hs, s := setUp(t)
			c, err := r.claim(r.v.slot(hs[0].Index), r.device)
			if err != nil || !r.v.slot(hs[0].Index).confirms(hs[0], &c) || c.slot != s.mem() {
				t.Fatal(err)
			}
			if r.v.slot(hs[0].Index).confirms(Handle{Index: hs[0].Index, Generation: 7}, &c) {
				t.Error("the claim is confirmed for another generation")
			}
			if err := change(w, hs, s); err != nil {
				t.Fatal(err)
			}
			if r.v.slot(hs[0].Index).confirms(hs[0], &c) {
				t.Error("the slot is still taken for the counter's")
			}
			// The seq of the next user, under an entry that was read before.
			c.seq = atomic.LoadUint64(&c.slot.seq) | 1
			if r.v.slot(hs[0].Index).confirms(hs[0], &c) {
				t.Error("another's seq is taken for the counter's")
			}
		})
	}
	t.Run("a free slot", func(t *testing.T) { // as no writer leaves it
		_, r, hs, s := setUp(t)
		s.mem().seq++
		if _, err := r.Device(hs[0]); !errors.Is(err, ErrBusy) {
			t.Error(err)
		}
		s.mem().seq--
	})
	t.Run("a slot that the segment does not have", func(t *testing.T) {
		w, r, hs, _ := setUp(t)
		e := w.v.slot(hs[0].Index).entry()
		now := &e.slots[e.seq&1]
		was := now.device
		for _, n := range []uint32{uint32(len(w.device.slots)) + 1, 1<<32 - 1} {
			now.device = n
			if _, err := r.Device(hs[0]); !errors.Is(err, ErrFormat) {
				t.Errorf("slot %d of %d: %v", n-1, len(w.device.slots), err)
			}
		}
		now.device = was
	})
}

// Counters and their words are added and removed while a device counts, a poller calls Rebase and readers
// read. No reader may see another counter's words, so the totals of counter n are n<<32 plus its count.
func TestDeviceReadsNoWordsOfAnotherCounter(t *testing.T) {
	w, r := heapMirror(t, 64, 0, 0, Options{CoolDown: -1})
	w.coolDown = 0
	seg := heapDevice(t, w, r, 3)
	var current [3]atomic.Pointer[DeviceSlot]
	var done atomic.Bool
	var wg sync.WaitGroup
	run := func(fn func(i uint64) error) {
		wg.Go(func() {
			for i := uint64(1); !done.Load(); i++ {
				if err := fn(i); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for g := range current {
		run(func(i uint64) error { // the life of one counter
			s, err := seg.Slot()
			if err != nil {
				return err
			}
			h, err := w.Add(Entry{Name: fmt.Sprint("qp", g)})
			if err != nil {
				return err
			}
			n := 3*i + uint64(g)
			limit := []uint64{7, 100, math.MaxUint64}[n%3]
			if err := w.SetDevice(h, s, n<<32, n<<32, limit); err != nil {
				return err
			}
			current[g].Store(s)
			for range 50 {
				s.mem().count(completions, 1, limit)
				s.mem().count(failures, 1, limit)
				if comp, errs, err := s.Rebase(); err != nil || comp>>32 != n || errs>>32 != n {
					return fmt.Errorf("counter %d rebased to %d and %d, %v", n, comp>>32, errs>>32, err)
				}
			}
			current[g].Store(nil)
			if n%2 == 0 {
				s.Free() // before the counter goes, or after
			}
			err = w.Remove(h)
			s.Free()
			return err
		})
	}
	run(func(uint64) error { // a poller that knows no better
		for g := range current {
			if s := current[g].Load(); s != nil {
				if _, _, err := s.Rebase(); err != nil && !errors.Is(err, ErrNoDevice) {
					return err
				}
			}
		}
		return nil
	})
	var loads atomic.Uint64
	run(func(i uint64) error {
		name := fmt.Sprint("qp", i%3)
		h, err := r.Lookup(name)
		if errors.Is(err, ErrNotFound) {
			return nil
		}
		d, err := r.Device(h)
		if errors.Is(err, ErrNoDevice) || errors.Is(err, ErrGone) {
			return nil
		}
		if err != nil {
			return err
		}
		number := uint64(0)
		for range 20 {
			comp, errs, err := d.Load()
			if errors.Is(err, ErrNoDevice) || errors.Is(err, ErrGone) {
				return nil
			}
			if err != nil {
				return err
			}
			if n := comp >> 32; number == 0 {
				number = n
			}
			if comp>>32 != number || errs>>32 != number || number%3 != i%3 {
				return fmt.Errorf("%s was counter %d and reads %d and %d", name, number, comp>>32, errs>>32)
			}
			loads.Add(1)
		}
		return nil
	})
	for start := time.Now(); time.Since(start) < 300*time.Millisecond || loads.Load() == 0 && !t.Failed(); time.Sleep(time.Millisecond) {
		if time.Since(start) > time.Minute {
			t.Error("nothing was read")
			break
		}
	}
	done.Store(true)
	wg.Wait()
	t.Logf("%d loads", loads.Load())
}

// What a poller calls in each cycle, and a reader's Load, must allocate nothing.
func TestDeviceCallsAllocateNothing(t *testing.T) {
	w, r := heapMirror(t, 64, 0, 0, Options{})
	h := mustAdd(t, w, Entry{Name: "a"})
	s := mustSlot(t, heapDevice(t, w, r, 1))
	if err := w.SetDevice(h, s, 0, 0, 99); err != nil {
		t.Fatal(err)
	}
	d := mustDevice(t, r, h)
	for name, fn := range map[string]func(){
		"Load":   func() { _, _, _ = d.Load() },
		"Rebase": func() { s.mem().words[0] = (s.mem().words[0] + 40) % 100; _, _, _ = s.Rebase() },
	} {
		if n := testing.AllocsPerRun(100, fn); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}
