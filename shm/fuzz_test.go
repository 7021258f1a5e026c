package shm

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/edsrzf/mmap-go"

	"github.com/flowtally/flowtally/internal/lab/golden"
	"github.com/flowtally/flowtally/internal/lab/seed"
)

// use calls every method of a reader. Whatever the bytes are, it ends, and it does not panic.
func use(t testing.TB, b []byte) {
	v, err := attach(heapStore{b})
	if err != nil {
		return
	}
	r := &Reader{path: "fuzz", v: v}
	es, _ := r.Entries()
	r.Status()
	var all, some Snapshot
	_ = r.Snapshot(&all)
	hs := []Handle{{}, {0, 1}, {63, 1}, {64, 1}, {4095, 1}, {4096, 1}, {8191, 1}, {8192, 1}, {1<<24 - 1, 1}, {1 << 24, 1}, {1 << 31, 1}, {1<<32 - 1, 1<<32 - 1}}
	for _, e := range es {
		hs = append(hs, e.Handle)
		_, _ = r.Lookup(e.Name)
	}
	_, _ = r.Lookup("web")
	_ = r.SnapshotOf(&some, hs)
	ended, end := context.WithCancel(context.Background())
	end()
	for _, h := range hs {
		_, _ = all.Value(h)
		_, _ = r.Entry(h)
		if c, err := r.Counter(h); err == nil {
			_, _ = c.Load()
			_, _ = c.Load()
			var p pace
			l, _ := newSleeper(r).look(&c)
			if at := p.next(0, &l); at < shortestNap || at > longestSleep {
				t.Fatalf("would nap for %d ns", at)
			}
		}
		_, _ = r.Wait(ended, h, 1<<63)
		_, _ = r.WaitChange(ended, h, Value{})
	}
	_ = r.Wakeable()
	if cur, err := r.History(); err == nil {
		recs := make([]Record, 3)
		for range 2 {
			for range 4 {
				_, _, _ = cur.Next(recs)
			}
			cur.Rewind()
		}
	}
	if len(r.v.check()) > 0 {
		return
	}
	// No invariant is broken: a writer takes it over, and breaks none.
	w, err := newWriter(Options{Path: "fuzz"}.withDefaults(), v, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range w.Entries() {
		if _, err := w.Last(e.Handle); err != nil {
			t.Fatal(err)
		}
		if e.Name == "web" {
			if err := w.Remove(e.Handle); err != nil {
				t.Fatal(err)
			}
		}
	}
	_, _ = w.Add(Entry{Name: "web", Latency: true})
	_, _ = w.Add(Entry{Name: "dns"})
	w.BeginCycle()
	w.PublishBlock(0, &Block{{1, 1, 1}})
	w.AppendHistory(Handle{}, Value{1, 1, 1})
	w.EndCycle(1)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if ps := r.v.check(); len(ps) > 0 {
		t.Fatalf("after taking over: %v", ps)
	}
}

// edit applies edits of 6 bytes to b: an offset, and a byte or, every other time, a 16-bit word and a
// shift. At the end the checksum is made right if sum is set: without it hardly anything gets past the
// header.
func edit(b, edits []byte, sum bool) {
	for ; len(edits) >= 6; edits = edits[6:] {
		at := int(binary.LittleEndian.Uint32(edits)) % len(b)
		if at >= headerSize && edits[4]&1 == 1 {
			at = likely(at, len(b))
		}
		b[at] = edits[5]
		if edits[4]&2 == 2 && at&^7+8 <= len(b) {
			binary.NativeEndian.PutUint64(b[at&^7:], uint64(edits[5])<<(edits[4]&0xf8>>2))
		}
	}
	if h, err := overlayHeader(b); err == nil && sum {
		h.checksum = fnv64(b[:hdrChecksum])
	}
}

// likely moves an offset to where the golden mirror has something: the ring, and in each
// segment the first entries, the words and copies of the first block, the first records.
func likely(at, length int) int {
	ring := headerSize + at%(8*historySize)
	segment := int(segmentOffset(4, uint32(at>>3&1)))
	parts := []int{ring, segment + at%(8*entrySize), segment + segSeq + at%128, segment + segIntent + at%64,
		segment + segCopy0 + at%copySize, segment + segCopy1 + at%copySize}
	return min(parts[at>>4%len(parts)], length-1)
}

// Reading any bytes returns, without a fault. If Check finds no problem in them, a writer can take them
// over.
func FuzzMirror(f *testing.F) {
	f.Add([]byte{}, true)
	f.Add([]byte{8, 0, 0, 0, 0, 2}, false)
	rnd := rand.New(rand.NewPCG(1, 2))
	for i := range 50 {
		b := make([]byte, 6*(1+i%7))
		for j := range b {
			b[j] = byte(rnd.Uint32())
		}
		f.Add(b, true)
	}
	base := newOriginal(f, golden.Unpack(f, goldenPath))
	f.Fuzz(func(t *testing.T, edits []byte, sum bool) {
		b := base.copy(t)
		edit(b, edits, sum)
		use(t, b)
	})
}

// original holds bytes in a file of which tests map private copies: a copy costs the pages
// that are used of it, and a golden mirror is 9 MB of zeros for the most part.
type original struct {
	f    *os.File
	size int
	last mmap.MMap
}

func newOriginal(t testing.TB, b []byte) *original {
	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	o := &original{f: f, size: len(b)}
	t.Cleanup(func() { o.unmap(t); f.Close() })
	if _, err := f.Write(b); err != nil {
		t.Fatal(err)
	}
	return o
}

// copy returns the bytes. They last until the next call.
func (o *original) copy(t testing.TB) []byte {
	o.unmap(t)
	var err error
	if o.last, err = mmap.MapRegion(o.f, o.size, mmap.COPY, 0, 0); err != nil {
		t.Fatal(err)
	}
	return o.last
}

func (o *original) unmap(t testing.TB) {
	if o.last == nil {
		return
	}
	if err := o.last.Unmap(); err != nil {
		t.Fatal(err)
	}
}

func FuzzRandomFile(f *testing.F) {
	base := golden.Unpack(f, goldenPath)
	f.Add(base[:70000])
	f.Add(base)
	f.Fuzz(func(t *testing.T, data []byte) {
		b := make([]byte, max(len(data), 1<<17)) // large: aligned
		copy(b, data)
		use(t, b[:len(data)])
	})
}

// Many random edits of a mirror, as a short form of FuzzMirror for the ordinary tests.
func TestReaderSurvivesRandomEdits(t *testing.T) {
	base := newOriginal(t, golden.Unpack(t, goldenPath))
	rnd := seed.Rand(t)
	n := 4000
	if testing.Short() {
		n = 400
	}
	for range n {
		b := base.copy(t)
		edits := make([]byte, 6*(1+rnd.IntN(12)))
		for j := range edits {
			edits[j] = byte(rnd.Uint32())
		}
		if rnd.IntN(2) == 0 { // in the header
			for j := 0; j < len(edits); j += 6 {
				binary.LittleEndian.PutUint32(edits[j:], uint32(rnd.IntN(1536)+rnd.IntN(2)*(hdrTable-512)))
			}
		}
		edit(b, edits, rnd.IntN(8) != 0)
		use(t, b)
	}
}
