package flexio

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"github.com/flowtally/flowtally/internal/lab/seed"
)

// alignedMem is memory as NewRing wants it.
func alignedMem(n int) []byte {
	b := make([]byte, n+64)
	at := int(-uintptr(unsafe.Pointer(&b[0])) % 64)
	return b[at : at+n : at+n]
}

// A plain and a compressed ring get the same completions, for many rounds, with blocks of all
// lengths.
func TestCompressedRingEqualsPlain(t *testing.T) {
	for _, comp := range []Compression{Basic, Enhanced} {
		for _, size := range []int{64, 128} {
			rng := seed.Rand(t)
			for _, format := range []CQECompFormat{MiniHash, MiniCsum, MiniCsumStrIdx} {
				compareRings(t, rng, comp, format, size, uint32(1)<<(3+rng.IntN(4)))
			}
		}
	}
}

func compareRings(t *testing.T, rng *rand.Rand, comp Compression, format CQECompFormat, size int, n uint32) {
	plain := &simRing{mem: alignedMem(int(n) * size), n: n, size: size}
	zipped := &simRing{mem: alignedMem(int(n) * size), n: n, size: size, comp: comp, fmt: format}
	a, err := NewRing(plain.mem, RingOptions{EntrySize: size})
	if err != nil {
		t.Fatal(err)
	}
	b, err := NewRing(zipped.mem, RingOptions{EntrySize: size, Compression: comp, Format: format, Expand: comp == Basic})
	if err != nil {
		t.Fatal(err)
	}
	second, err := NewRing(zipped.mem, RingOptions{EntrySize: size}) // the consumer behind b, which knows no compression
	if err != nil {
		t.Fatal(err)
	}
	a.Init()
	b.Init()
	counter := uint16(rng.Uint32())
	for total := uint32(0); total < 300*n; { // 300 passes: the count of passes has 8 bits
		free := int(n - (plain.pi - a.Consumed()))
		for free > 0 && rng.IntN(4) > 0 { // the device goes on
			run := randomRun(rng, format, 1+rng.IntN(min(free, 40)), &counter)
			for _, c := range run {
				plain.one(c)
			}
			if len(run) == 1 {
				zipped.one(run[0])
			} else {
				zipped.block(run)
			}
			free -= len(run)
		}
		for plain.pi != a.Consumed() && rng.IntN(8) > 0 { // the consumer does
			total++
			var want, got CQE64
			okA, errA := a.Next(&want)
			okB, errB := b.Next(&got)
			if !okA || !okB || errA != nil || errB != nil {
				t.Fatalf("%d entries, completion %d: %t, %v on the plain ring, %t, %v on the compressed one", n, total, okA, errA, okB, errB)
			}
			got.Signature = want.Signature
			if got != want {
				t.Fatalf("%d entries, compression %d, completion %d:\n got %+v\nwant %+v", n, comp, total, got, want)
			}
			if comp == Basic {
				if ok, err := second.Next(&got); !ok || err != nil || got != want {
					t.Fatalf("%d entries, completion %d was not written back: %t, %v:\n got %+v\nwant %+v", n, total, ok, err, got, want)
				}
			}
		}
		if plain.pi == a.Consumed() {
			var none CQE64
			if ok, err := b.Next(&none); ok || err != nil {
				t.Fatalf("%d entries: a completion that nobody wrote: %+v, %v", n, none, err)
			}
		}
	}
}

func TestNewRingRefusesMemoryThatIsNoRing(t *testing.T) {
	mem := alignedMem(1024)
	for _, tt := range []struct {
		name string
		mem  []byte
		o    RingOptions
	}{
		{"nothing", nil, RingOptions{}},
		{"three entries", mem[:192], RingOptions{}},
		{"a part of an entry", mem[:100], RingOptions{}},
		{"unaligned", mem[8 : 8+64], RingOptions{}},
		{"entries of 32 bytes", mem, RingOptions{EntrySize: 32}},
		{"a compression of tomorrow", mem, RingOptions{Compression: 9}},
		{"a format that is not expanded", mem, RingOptions{Format: MiniFtagStrIdx}},
		{"another", mem, RingOptions{Format: MiniL34HStrIdx}},
	} {
		if _, err := NewRing(tt.mem, tt.o); !errors.Is(err, ErrRing) {
			t.Errorf("%s: %v, want %v", tt.name, err, ErrRing)
		}
	}
}

// A slot within a block keeps the count of an earlier pass unless the walk overwrites it, and the
// count repeats after 256 passes.
func TestEnhancedRingForgetsOldPasses(t *testing.T) {
	r, err := NewRing(alignedMem(8*64), RingOptions{Compression: Enhanced})
	if err != nil {
		t.Fatal(err)
	}
	r.Init()
	s := &simRing{mem: r.mem, n: 8, size: 64, comp: Enhanced}
	walk := func(pass, n int) {
		t.Helper()
		var c CQE64
		for i := range n {
			if ok, err := r.Next(&c); !ok || err != nil {
				t.Fatalf("pass %d, completion %d: %t, %v", pass, i, ok, err)
			}
		}
		if ok, err := r.Next(&c); ok || err != nil {
			t.Fatalf("pass %d: a completion that nobody wrote: %+v, %v", pass, c, err)
		}
	}
	for range 8 {
		s.one(CQE64{OpOwn: 0x20})
	}
	walk(0, 8)
	for pass := 1; pass < 256; pass++ {
		s.block(make([]CQE64, 8)) // a title, and one slot with the other seven
		walk(pass, 8)
	}
	s.one(CQE64{OpOwn: 0x20})
	walk(256, 1)
	s.one(CQE64{OpOwn: 0x20})
	walk(256, 1)
}

func TestLogEntriesAcceptsOnlyPowersOfTwo(t *testing.T) {
	for _, tt := range []struct {
		n, size, log int
		ok           bool
	}{{64, 64, 0, true}, {128, 128, 0, true}, {64 << 24, 64, 24, true}, {64 << 25, 64, 0, false}, {192, 64, 0, false}, {64 + 32, 64, 0, false}, {0, 64, 0, false}} {
		if log, ok := logEntries(tt.n, tt.size); ok != tt.ok || ok && log != tt.log {
			t.Errorf("%d bytes of %d: 2^%d, %t, want 2^%d, %t", tt.n, tt.size, log, ok, tt.log, tt.ok)
		}
	}
}

func TestRingStopsAtEntriesThatNoDeviceWrites(t *testing.T) {
	for _, tt := range []struct {
		name string
		comp Compression
		cqe  CQE64
	}{
		{"a block of one", Basic, CQE64{ByteCnt: 1, OpOwn: 0x2c}},
		{"a block longer than the ring", Basic, CQE64{ByteCnt: 17, OpOwn: 0x2c}},
		{"no title", Enhanced, CQE64{OpOwn: 0x1c}},
		{"eight in a slot", Enhanced, CQE64{OpOwn: 0x7c}},
	} {
		r, err := NewRing(alignedMem(16*64), RingOptions{Compression: tt.comp})
		if err != nil {
			t.Fatal(err)
		}
		r.Init()
		var c CQE64
		at := 0
		if tt.name == "eight in a slot" { // behind a title
			copy(r.mem, entryBytes(CQE64{OpOwn: 0x20}))
			if ok, err := r.Next(&c); !ok || err != nil {
				t.Fatal(ok, err)
			}
			at = 64
		}
		copy(r.mem[at:], entryBytes(tt.cqe))
		for range 2 { // and stays stopped
			if ok, err := r.Next(&c); ok || !errors.Is(err, ErrCorrupt) {
				t.Errorf("%s: %t, %v; want %v", tt.name, ok, err, ErrCorrupt)
			}
		}
	}
}

// Whatever bytes are in a ring, the walk ends in an error or in no more completions than the ring
// has entries, and touches no other memory.
func FuzzRing(f *testing.F) {
	f.Add([]byte{}, uint8(1))
	f.Add(slices.Repeat([]byte{0, 0, 0, 9, 0x2c}, 200), uint8(1))
	f.Add(slices.Repeat([]byte{0, 0x0c}, 500), uint8(2))
	f.Fuzz(func(t *testing.T, bytes []byte, comp uint8) {
		mem := alignedMem(16 * 64)
		copy(mem, bytes)
		r, err := NewRing(mem, RingOptions{Compression: Compression(comp % 3)})
		if err != nil {
			t.Fatal(err)
		}
		var c CQE64
		for i := range 1000 {
			before := r.Consumed()
			ok, err := r.Next(&c)
			if ok == (r.Consumed() == before) {
				t.Fatalf("step %d: taken %t, index %d after %d", i, ok, r.Consumed(), before)
			}
			if !ok && err == nil {
				return
			}
			if err != nil && !errors.Is(err, ErrCorrupt) {
				t.Fatal(err)
			}
		}
	})
}

func TestRingAllocatesNothing(t *testing.T) {
	r, err := NewRing(alignedMem(64*64), RingOptions{})
	if err != nil {
		t.Fatal(err)
	}
	r.Init()
	s := &simRing{mem: r.mem, n: 64, size: 64}
	var c CQE64
	if n := testing.AllocsPerRun(1000, func() {
		if ok, err := r.Next(&c); ok || err != nil {
			t.Fatal(ok, err)
		}
	}); n != 0 {
		t.Errorf("an empty ring: %v allocations", n)
	}
	for range 64 {
		s.one(CQE64{OpOwn: 0x20})
	}
	if n := testing.AllocsPerRun(50, func() {
		if ok, err := r.Next(&c); !ok || err != nil {
			t.Fatal(ok, err)
		}
	}); n != 0 {
		t.Errorf("a completion: %v allocations", n)
	}
}

func BenchmarkRingNext(b *testing.B) {
	r, err := NewRing(alignedMem(1024*64), RingOptions{})
	if err != nil {
		b.Fatal(err)
	}
	r.Init()
	s := &simRing{mem: r.mem, n: 1024, size: 64}
	entry := CQE64{OpOwn: 0x20}
	var c CQE64
	for b.Loop() {
		e := s.slot(s.pi)
		e[63] = uint8(entry.OpOwn) | uint8(s.pi/s.n&1)
		s.pi++
		if ok, err := r.Next(&c); !ok || err != nil {
			b.Fatal(ok, err)
		}
	}
}
