package xdp

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/edsrzf/mmap-go"
)

// mapped returns n words on pages of their own, aligned as a map's are.
func mapped(t *testing.T, n int) []uint64 {
	t.Helper()
	m, err := mmap.MapRegion(nil, n*8, mmap.RDWR, mmap.ANON, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Unmap() })
	return wordsOf(m)
}

// Summing in vectors equals summing one by one, for any ids.
func TestReadIsReadEach(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, cpus := range []int{1, 2, 3, 8} {
		const counters = 100
		block := 256 // words of one CPU: counters and a gap
		v := &values{words: mapped(t, cpus*block), block: block, base: make([]Pair, counters)}
		for i := range v.base {
			v.base[i] = Pair{Packets: rng.Uint64() >> 40, Bytes: rng.Uint64() >> 40}
		}
		for at := 0; at < len(v.words); at += 2 {
			packets := rng.Uint64() >> 12
			v.words[at], v.words[at+1] = packets, rng.Uint64()>>20<<8+packets
		}
		for range 200 {
			var ids []uint32
			for len(ids) < 64 {
				first := rng.Uint32N(counters)
				for id := first; id < min(counters, first+1+rng.Uint32N(40)); id++ {
					ids = append(ids, id)
				}
			}
			got, want := make([]Pair, len(ids)), make([]Pair, len(ids))
			if err := v.read(ids, got); err != nil {
				t.Fatal(err)
			}
			if err := v.readEach(ids, want); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(got, want) {
				t.Fatalf("%d CPUs, ids %v: got %v, want %v", cpus, ids, got, want)
			}
			first := rng.Uint32N(counters)
			rows := make([]Row, 2+rng.Uint32N(counters-first))
			if err := v.rows(first, rows[1:len(rows)-1], 77); err != nil {
				t.Fatal(err)
			}
			for i, r := range rows {
				want := Row{SampledAt: 77}
				if i == 0 || i == len(rows)-1 {
					want = Row{}
				} else if p, err := v.raw(first + uint32(i) - 1); err != nil {
					t.Fatal(err)
				} else {
					b := v.base[first+uint32(i)-1]
					want.Packets, want.Bytes = p.Packets-b.Packets, p.Bytes-b.Bytes
				}
				if r != want {
					t.Fatalf("%d CPUs, row %d of %d from %d on: got %v, want %v", cpus, i, len(rows), first, r, want)
				}
			}
		}
	}
}

// A slot that is met between its stores is seen, wherever it stands.
func TestSumSeesATornSlot(t *testing.T) {
	if !canSum {
		t.Skip("needs AVX2")
	}
	const cpus, block, n = 2, 64, 16
	for at := 0; at < cpus*block; at += 2 {
		v := &values{words: mapped(t, cpus*block), block: block, base: make([]Pair, n)}
		v.words[at]++ // packets stored, the second word not yet
		inside := at%block < 2*n
		if ok := v.sum(0, make([]Pair, n)); ok == inside {
			t.Errorf("slot word %d torn: sum answers %t", at, ok)
		}
		// Rows of eight before it are stored, and nothing from there on.
		rows, want := make([]Row, n), uintptr(n)
		if inside {
			want = uintptr(at % block / 2 &^ 7)
		}
		done := sumRows(&v.words[0], block*8, cpus, n, &v.base[0], &rows[0], 5)
		for i, r := range rows {
			if stored := r.SampledAt == 5; done != want || stored != (i < int(want)) {
				t.Errorf("slot word %d torn: %d rows done, want %d; row %d is %+v", at, done, want, i, r)
			}
		}
	}
}

// A slot that stays between its two stores, because its CPU stopped there, reads
// as it was before the update.
func TestStoppedBetweenStores(t *testing.T) {
	if !inOrder {
		t.Skip("stores become visible in any order here")
	}
	const counters = 8
	for _, n := range []uint64{1, 2, 43, 255} {
		v := &values{words: mapped(t, 512), block: 512, base: make([]Pair, counters)}
		for i := range uint64(counters) {
			packets, bytes := 1000+i*77, 90_000+i
			v.words[2*i], v.words[2*i+1] = packets+n, bytes<<8+packets
		}
		got := make([]Pair, counters)
		if err := v.read([]uint32{0, 1, 2, 3, 4, 5, 6, 7}, got); err != nil {
			t.Fatal(err)
		}
		for i, p := range got {
			if want := (Pair{1000 + uint64(i)*77, 90_000 + uint64(i)}); p != want {
				t.Errorf("%d packets on their way, counter %d: got %+v, want %+v", n, i, p, want)
			}
		}
	}
}
