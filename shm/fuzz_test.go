package shm

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/flowtally/flowtally/internal/lab/seed"
)

// use does with a reader all that can be done. Whatever the bytes are, it ends,
// and it does not panic.
func use(t testing.TB, m *mapping) {
	r, err := newReader("fuzz", m)
	if err != nil {
		return
	}
	es, _ := r.Entries()
	r.Status()
	var all, some Snapshot
	_ = r.Snapshot(&all)
	hs := []Handle{{}, {0, 1}, {63, 1}, {64, 1}, {1 << 31, 1}, {1<<32 - 1, 1<<32 - 1}}
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
	w, err := newWriter(Options{Path: "fuzz"}.withDefaults(), m, r.v, nil)
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

func readGolden(t testing.TB) []byte {
	b, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// edit applies edits of 6 bytes to b: where, and what byte or, every other
// time, what 16-bit word shifted how far. At the end the checksum is made right
// if sum is set: without it hardly anything gets past the header.
func edit(b, edits []byte, sum bool) {
	for ; len(edits) >= 6; edits = edits[6:] {
		at := int(binary.LittleEndian.Uint32(edits)) % len(b)
		if at >= headerSize && edits[4]&1 == 1 { // the used parts are at the starts of sections
			at = headerSize + at%(8*entrySize)
		}
		b[at] = edits[5]
		if edits[4]&2 == 2 && at&^7+8 <= len(b) {
			binary.NativeEndian.PutUint64(b[at&^7:], uint64(edits[5])<<(edits[4]&0xf8>>2))
		}
	}
	if h, err := overlayHeader(b); err == nil && sum {
		h.checksum = fnv64(bytesOf(h)[:hdrChecksum])
	}
}

// A reader of any bytes ends without a fault, and what Check finds no fault
// with a writer can go on with.
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
	base := readGolden(f)
	f.Fuzz(func(t *testing.T, edits []byte, sum bool) {
		b := append([]byte(nil), base...)
		edit(b, edits, sum)
		use(t, &mapping{b: b})
	})
}

func FuzzRandomFile(f *testing.F) {
	base := readGolden(f)
	f.Add(base[:5000])
	f.Add(base)
	f.Fuzz(func(t *testing.T, data []byte) {
		b := make([]byte, max(len(data), 1<<16)) // large: aligned
		copy(b, data)
		use(t, &mapping{b: b[:len(data)]})
	})
}

// Many random edits, in the ordinary run of the tests.
func TestMutations(t *testing.T) {
	base := readGolden(t)
	rnd := seed.Rand(t)
	n := 4000
	if testing.Short() {
		n = 400
	}
	b := make([]byte, len(base))
	for range n {
		copy(b, base)
		edits := make([]byte, 6*(1+rnd.IntN(12)))
		for j := range edits {
			edits[j] = byte(rnd.Uint32())
		}
		if rnd.IntN(2) == 0 { // in the header
			for j := 0; j < len(edits); j += 6 {
				binary.LittleEndian.PutUint32(edits[j:], uint32(rnd.IntN(1536)))
			}
		}
		edit(b, edits, rnd.IntN(8) != 0)
		use(t, &mapping{b: b})
	}
}
