package tree

import (
	"fmt"
	"math/bits"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/flowtally/flowtally/internal/lab/classbench"
)

// nsTable is the measured cost of one more table that a packet probes: 15 to 20 ns.
const nsTable = 17.5

// tuples is the number of tables of tuple search, with ranges of ports expanded to masks.
func tuples(rules []classbench.Rule) int {
	type mask struct{ src, dst, proto, sport, dport int }
	seen := map[mask]bool{}
	lens := func(r classbench.Range) (out []int) {
		for first := uint32(r.First); first <= uint32(r.Last); {
			size := min(bits.TrailingZeros32(first|1<<16), bits.Len32(uint32(r.Last)-first+1)-1)
			out = append(out, 16-size)
			first += 1 << size
		}
		return out
	}
	for _, r := range rules {
		proto := 0
		if r.Proto != 0 {
			proto = 8
		}
		for _, s := range lens(r.SrcPort) {
			for _, d := range lens(r.DstPort) {
				seen[mask{r.Src.Len, r.Dst.Len, proto, s, d}] = true
			}
		}
	}
	return len(seen)
}

// merged is the number of tables of merged tuples: a rule goes to the first table that is not narrower than it and
// has less than ten rules in its place; without one it makes a table, of prefix lengths rounded down to bytes.
// After Daly et al., "TupleMerge", IEEE/ACM Transactions on Networking 27(4), 2019.
func merged(rules []classbench.Rule) int {
	type place struct{ src, dst uint32 }
	type table struct {
		src, dst int
		places   map[place]int
	}
	var tables []*table
	mask := func(n int) uint32 { return uint32(^uint64(0) << (32 - n)) }
	for _, r := range rules {
		done := false
		for _, t := range tables {
			p := place{r.Src.Addr & mask(t.src), r.Dst.Addr & mask(t.dst)}
			if t.src <= r.Src.Len && t.dst <= r.Dst.Len && (t.places[p] < 10 || t.src == r.Src.Len && t.dst == r.Dst.Len) {
				t.places[p]++
				done = true
				break
			}
		}
		if !done {
			t := &table{r.Src.Len &^ 7, r.Dst.Len &^ 7, map[place]int{}}
			for _, o := range tables {
				if o.src == t.src && o.dst == t.dst {
					t.src, t.dst = r.Src.Len, r.Dst.Len
				}
			}
			t.places[place{r.Src.Addr & mask(t.src), r.Dst.Addr & mask(t.dst)}]++
			tables = append(tables, t)
		}
	}
	return len(tables)
}

// It also prints the table of docs/classifier.md: the cost of a packet in each classifier, by counting its steps.
func TestTreesOf24MasksCostLessThan45ns(t *testing.T) {
	sizes := []int{1000}
	if !testing.Short() {
		sizes = append(sizes, 10000)
	}
	var out strings.Builder
	row := func(name string, from []classbench.Rule) {
		rules := rulesOf(from)
		s := New(make([]uint64, 1<<20), Options{Class: testClass})
		var before, after syscall.Rusage
		_ = syscall.Getrusage(syscall.RUSAGE_SELF, &before)
		if err := s.Build(rules); err != nil {
			t.Fatal(err)
		}
		_ = syscall.Getrusage(syscall.RUSAGE_SELF, &after)
		match := entries(rules)
		var w Walk
		packets := classbench.Points(from, 2000, seed)
		for _, p := range packets {
			k := keyOf(p)
			w.Lookup(s.mem.words, s.class, &k, NoRank, match)
		}
		n := float64(len(packets))
		tuple, merge := tuples(from), merged(from)
		fmt.Fprintf(&out, "| %s | %d | %d (%.0f) | %d (%.0f) | %.1f | %.1f | %.1f | **%.0f** | %.1f | %v |\n", name, len(from),
			tuple, nsTable*float64(tuple), merge, nsTable*float64(merge), float64(w.Groups)/n, float64(w.Cuts)/n, float64(w.Entries)/n,
			w.NS()/n, float64(len(s.mem.words)-s.mem.free)/float64(len(rules)),
			time.Duration(after.Utime.Nano()-before.Utime.Nano()).Round(time.Millisecond))
		if name == "24 masks" && w.NS()/n > 45 {
			t.Errorf("a packet of 24 masks costs %.0f ns by the model", w.NS()/n)
		}
	}
	for _, n := range sizes {
		row("24 masks", classbench.Masked(n, 24, seed))
		row("200 masks", classbench.Masked(n, 200, seed))
		row("4,096 masks", classbench.Masked(n, 4096, seed))
		row("ranges of both ports", classbench.Ranges(n, seed))
		for _, f := range classbench.Families() {
			row("ClassBench "+f.String(), classbench.Generate(f, n, seed))
		}
	}
	t.Logf("\n%s", out.String())
}
