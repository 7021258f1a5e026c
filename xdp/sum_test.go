package xdp

import (
	"errors"
	"fmt"
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
func TestVectorSumEqualsReadingOneByOne(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, cpus := range []int{1, 2, 3, 8} {
		const counters = 100
		block := 256 // words of one CPU: counters and a gap
		v := &values{words: mapped(t, cpus*block), block: block, base: make([]sums, counters)}
		for i := range v.base {
			packets := rng.Uint64() >> 40
			v.base[i] = sums{packets, rng.Uint64()>>40<<8 + packets}
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
					own := p.since(v.base[first+uint32(i)-1])
					want.Packets, want.Bytes = own.Packets, own.Bytes
				}
				if r != want {
					t.Fatalf("%d CPUs, row %d of %d from %d on: got %v, want %v", cpus, i, len(rows), first, r, want)
				}
			}
		}
	}
}

// A count begins in a slot whose bytes are about to wrap around, of one CPU or in the sum of all.
func TestCountSurvivesAWrapOfItsSlot(t *testing.T) {
	const cpus, block, counters = 3, 64, 8 + 4 + 3
	const most = 1<<56 - 1
	for _, before := range [][cpus]uint64{{}, {most - 100}, {most, most, most}, {most / 3, most / 3, most / 3}, {1, most - 200, 50}} {
		for _, grows := range []uint64{0, 60, 101, 1500, 1 << 50, most / cpus} {
			v := &values{words: mapped(t, cpus*block), block: block, base: make([]sums, counters)}
			add := func(id, cpu int, packets, bytes uint64) {
				at := v.words[cpu*block+2*id:]
				at[0], at[1] = at[0]+packets, at[1]+bytes<<8+packets
			}
			var ids []uint32
			m := &meta{counters: make([]uint64, counters*metaCountWords)}
			for id := range counters {
				ids = append(ids, uint32(id))
				for cpu, bytes := range before {
					add(id, cpu, bytes/700, bytes)
				}
				base, err := v.raw(uint32(id))
				if err != nil {
					t.Fatal(err)
				}
				m.counter(uint32(id)).take("web", 1, base.since(sums{}))
				v.base[id] = m.counter(uint32(id)).base() // as the next process has it
				for cpu := range cpus {
					add(id, cpu, uint64(id), grows)
				}
			}
			all, each, rows := make([]Pair, counters), make([]Pair, counters), make([]Row, counters)
			if err := errors.Join(v.read(ids, all), v.readEach(ids, each), v.rows(0, rows, 7)); err != nil {
				t.Fatal(err)
			}
			for id := range counters {
				want := Pair{Packets: uint64(cpus * id), Bytes: cpus * grows}
				if row := (Pair{rows[id].Packets, rows[id].Bytes}); all[id] != want || each[id] != want || row != want {
					t.Errorf("after %d and %d on each CPU, counter %d: %v, one by one %v, in rows %v; want %v", before, grows, id, all[id], each[id], row, want)
				}
			}
		}
	}
}

// Counts go on beyond the 56 bits of bytes that the slots have, in this process and in the next ones, and a count that
// begins in such a slot begins at 0.
func TestCountGoesOnBeyond56BitsOfBytes(t *testing.T) {
	const cpus, block, counters = 2, 64, 8 + 4 + 3
	words, m := mapped(t, cpus*block), &meta{counters: make([]uint64, counters*metaCountWords)}
	open := func() *Datapath { // as build does
		dp := &Datapath{meta: m, pool: newCounterPool(m, counters), values: values{words: words, block: block, base: make([]sums, counters)}}
		for _, id := range dp.pool.idByOwner {
			dp.values.base[id] = m.counter(id).base()
			dp.values.setLeast(id, m.counter(id).steps())
		}
		return dp
	}
	dp := open()
	var ids []uint32
	for id := range uint32(counters) {
		ids = append(ids, id)
		words[2*id+1] = (1<<56 - uint64(id)) << 8 // of an earlier count
		if _, err := dp.AllocCounter(fmt.Sprint(id)); err != nil {
			t.Fatal(err)
		}
	}
	want := make([]Pair, counters)
	check := func() {
		t.Helper()
		all, rows := make([]Pair, counters), make([]Row, counters)
		if err := errors.Join(dp.Read(ids, all), dp.readRows(0, rows, 7)); err != nil {
			t.Fatal(err)
		}
		for id := range want {
			if row := (Pair{rows[id].Packets, rows[id].Bytes}); all[id] != want[id] || row != want[id] {
				t.Errorf("counter %d: %v, in rows %v; want %v", id, all[id], row, want[id])
			}
		}
	}
	for n := range 60 {
		for id := range want {
			packets, bytes := uint64(n), uint64(1<<50)*uint64(id) // on each CPU
			for cpu := range cpus {
				at := words[cpu*block+2*id:]
				at[0], at[1] = at[0]+packets, at[1]+bytes<<8+packets
			}
			want[id].Packets, want[id].Bytes = want[id].Packets+cpus*packets, want[id].Bytes+cpus*bytes
		}
		check()
		if n%7 == 3 {
			dp = open()
			check()
		}
		dp.KeepBytes()
		check()
	}
	dp.pool.release(counters - 1)
	dp.pool.cooled()
	want[counters-1] = Pair{}
	if c, err := dp.AllocCounter("next"); err != nil || c.ID != counters-1 {
		t.Fatal(c, err)
	}
	check()
	dp = open()
	check()
}

// A slot that is met between its stores is seen, wherever it stands.
func TestSumSeesATornSlot(t *testing.T) {
	if !canSum {
		t.Skip("needs AVX2")
	}
	const cpus, block, n = 2, 64, 16
	for at := 0; at < cpus*block; at += 2 {
		v := &values{words: mapped(t, cpus*block), block: block, base: make([]sums, n)}
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
func TestSlotStoppedBetweenItsStoresReadsAsBefore(t *testing.T) {
	if !inOrder {
		t.Skip("stores become visible in any order here")
	}
	const counters = 8
	for _, n := range []uint64{1, 2, 43, 255} {
		v := &values{words: mapped(t, 512), block: 512, base: make([]sums, counters)}
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
