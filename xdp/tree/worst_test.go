package tree

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/flowtally/flowtally/internal/lab/classbench"
)

// scatteredRules makes rules of scattered filters, of which the first wins.
func scatteredRules(from []classbench.Scattered) []Rule {
	out := make([]Rule, len(from))
	for i, f := range from {
		flags := uint16(flagIPv4 | flagL4)
		r := Rule{Rank: uint64(i), Entry: Entry(i+1)<<5 | 1, Ports: [2]Ranges{{Src: Range(f.SrcPort), Dst: Range(f.DstPort)}}}
		r.Mask[0], r.Key[0] = word0(0, 0, 0xff, flags), word0(0, 0, 6, flags)
		r.Mask[1], r.Key[1] = word1(f.SrcMask, f.DstMask), word1(f.Src, f.Dst)
		out[i] = r
	}
	return out
}

// climb searches a key that touches as much as possible: it flips bits and ports of a key as long as that makes the path
// longer.
func climb(s *Set, match Match, start Key, g *rand.Rand, tries int) Path {
	touched := func(k *Key) Path {
		var w Walk
		s.Walk(&w, k, NoRank, match)
		return w.Path()
	}
	at, most := start, touched(&start)
	for range tries {
		k := at
		for range 1 + g.IntN(3) {
			switch g.IntN(4) {
			case 0:
				k[1] ^= 1 << g.IntN(64)
			case 1:
				b := be64(k[0])
				k[0] = be64(b&^(0xffff<<48) | uint64([]uint16{0, 1, 65535, 65534, uint16(g.IntN(65536))}[g.IntN(5)])<<48)
			case 2:
				b := be64(k[0])
				k[0] = be64(b&^(0xffff<<32) | uint64([]uint16{0, 1, 65535, 65534, uint16(g.IntN(65536))}[g.IntN(5)])<<32)
			default:
				k[1+g.IntN(Words-1)] ^= 1 << g.IntN(64)
			}
		}
		if p := touched(&k); p.Steps() >= most.Steps() {
			at, most = k, p
		}
	}
	return most
}

// The bound is compared with random keys, and with the worst keys that a search finds, while the set changes.
func TestNoPacketTouchesMoreThanWorst(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		d := &drawn{g: g}
		s := New(make([]uint64, 1<<16), Options{Class: testClass})
		var rules []Rule
		for range rapid.IntRange(1, 4).Draw(t, "changes") {
			var add []Rule
			for range rapid.SampledFrom([]int{1, 5, 40, 200}).Draw(t, "rules") {
				add = append(add, d.rule())
			}
			if err := s.Exchange(nil, add); err != nil {
				t.Fatal(err)
			}
			s.Reclaim()
			rules = append(rules, add...)
		}
		match := entries(rules)
		worst := s.Worst()
		for range 8 {
			k := d.key(rules)
			if p := climb(s, match, k, g, 30); p.Steps() > worst[testClass.Of(&k)].Steps() {
				t.Fatalf("%d rules: a packet touches %+v, the bound is %+v", len(rules), p, worst[testClass.Of(&k)])
			}
			var w Walk
			if s.Walk(&w, &k, NoRank, match); w.NS() > w.Path().NS() {
				t.Fatalf("a path of %+v takes %.0f ns, the lookup %.0f", w.Path(), w.Path().NS(), w.NS())
			}
		}
	})
}

// It also prints mean and worst path of the measured sets and of some nasty ones (docs/classifier.md). The default of xdp.worst_cost is
// 2,048.
func TestOrdinarySetsStayBelowTheDefaultWorstCost(t *testing.T) {
	type set struct {
		name  string
		rules []Rule
		keys  []Key
	}
	var sets []set
	sizes := []int{1000}
	if !testing.Short() {
		sizes = append(sizes, 10_000)
	}
	for _, n := range sizes {
		for name, from := range generated(n) {
			s := set{name: name, rules: rulesOf(from)}
			for _, p := range classbench.Points(from, 2000, seed) {
				s.keys = append(s.keys, keyOf(p))
			}
			sets = append(sets, s)
		}
	}
	nasty := map[string][]classbench.Scattered{
		"fewbits.3000": classbench.FewBits(3000, seed), "sixbits.2000": classbench.SixBits(2000, seed), "nested.3000": classbench.Nested(3000),
	}
	for name, from := range nasty {
		s := set{name: name, rules: scatteredRules(from)}
		d := &drawn{g: rand.New(rand.NewPCG(1, 1))}
		for len(s.keys) < 2000 {
			k := d.key(s.rules)
			k[0] = k[0]&^testClass.IPv6 | word0(0, 0, 0, flagIPv4|flagL4)
			s.keys = append(s.keys, k)
		}
		sets = append(sets, s)
	}
	var out strings.Builder
	for _, in := range sets {
		s := New(make([]uint64, 1<<21), Options{Class: testClass})
		var before, after syscall.Rusage
		_ = syscall.Getrusage(syscall.RUSAGE_SELF, &before)
		if err := s.Build(in.rules); err != nil {
			fmt.Fprintf(&out, "%-16s %v\n", in.name, err)
			continue
		}
		_ = syscall.Getrusage(syscall.RUSAGE_SELF, &after)
		match := entries(in.rules)
		var w Walk
		g := rand.New(rand.NewPCG(2, 2))
		var found Path
		for i := range in.keys {
			s.Walk(&w, &in.keys[i], NoRank, match)
			if i < 8 {
				if p := climb(s, match, in.keys[i], g, 200); p.Steps() > found.Steps() {
					found = p
				}
			}
		}
		n := float64(len(in.keys))
		worst := s.Worst()[1]
		if found.Steps() > worst.Steps() {
			t.Errorf("%s: a packet touches %+v, the bound is %+v", in.name, found, worst)
		}
		if nasty[in.name] == nil && worst.Steps() > 512 {
			t.Errorf("%s: the worst path has %d steps", in.name, worst.Steps())
		}
		fmt.Fprintf(&out, "%-16s mean %6.1f steps %5.0f ns; found %4d (%d nodes %d entries); bound %5d (%d nodes %d entries) %6.0f ns; %d trees, %d words, %v\n", in.name,
			float64(w.Nodes+w.Entries)/n, w.NS()/n, found.Steps(), found.Nodes, found.Entries, worst.Steps(), worst.Nodes, worst.Entries, worst.NS(), s.Trees()[1], s.Words(),
			time.Duration(after.Utime.Nano()-before.Utime.Nano()).Round(time.Millisecond))
	}
	t.Logf("\n%s", out.String())
}

// The error names the entries of the worst path, and nothing changes. Existing rules are never refused: they can be built and removed.
func TestExchangeBeyondTheBoundIsRefused(t *testing.T) {
	rules := scatteredRules(classbench.FewBits(800, seed))
	s := New(make([]uint64, 1<<19), Options{Class: testClass})
	s.Bound = 100
	var in []Rule
	var costly *CostError
	for _, r := range rules {
		err := s.Exchange(nil, []Rule{r})
		if s.Reclaim(); err == nil {
			in = append(in, r)
		} else if !errors.As(err, &costly) {
			t.Fatal(err)
		} else {
			break
		}
		if worst := s.Worst()[1].Steps(); worst > s.Bound {
			t.Fatalf("%d rules have a worst path of %d steps", len(in), worst)
		}
	}
	if costly == nil || costly.Class != 1 || costly.Worst.Steps() <= s.Bound || len(costly.Entries) == 0 || len(in) < 50 {
		t.Fatalf("%d rules, then %+v", len(in), costly)
	}
	t.Logf("%d rules in %d steps; the next: %v", len(in), s.Worst()[1].Steps(), costly)
	checkMemory(t, s)
	match := entries(in)
	d := &drawn{g: rand.New(rand.NewPCG(1, 1))}
	for range 300 {
		if k := d.key(in); s.Lookup(&k, match) != best(in, &k) {
			t.Fatalf("key %x: another rule wins than before the refused exchange", k)
		}
	}
	if err := s.Exchange(nil, rules[len(in):]); !errors.As(err, &costly) {
		t.Errorf("many rules at once: %v", err)
	}
	s.Reclaim()
	if err := s.Build(rules); err != nil {
		t.Fatalf("building rules that are in force: %v", err)
	}
	s.Reclaim()
	was := s.Worst()[1].Steps()
	if err := s.Exchange([]Entry{rules[0].Entry}, nil); err != nil {
		t.Errorf("removing a rule of a set that is above the bound (%d): %v", was, err)
	}
	s.Reclaim()
	exact := Rule{Rank: 1 << 30, Entry: Entry(len(rules)+5)<<5 | 1}
	exact.Key[0], exact.Mask[0] = word0(0, 0, 0, flagIPv6), word0(0, 0, 0, flagIPv6)
	if err := s.Exchange(nil, []Rule{exact}); err != nil {
		t.Errorf("adding a rule of another class beside a set that is above the bound: %v", err)
	}
}

// Exchange updates the paths of a set without walking the trees. They must never be below the true ones.
func TestTrackedPathsAreBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := &drawn{g: rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))}
		s := New(make([]uint64, 1<<16), Options{Class: testClass})
		var in []Rule
		for range rapid.IntRange(1, 12).Draw(t, "changes") {
			var add []Rule
			for range rapid.SampledFrom([]int{0, 1, 2, 40}).Draw(t, "add") {
				add = append(add, d.rule())
			}
			var remove []Entry
			n := min(len(in), rapid.SampledFrom([]int{0, 1, 3}).Draw(t, "remove"))
			for _, r := range in[:n] {
				remove = append(remove, r.Entry)
			}
			if err := s.Exchange(remove, add); err != nil {
				t.Fatal(err)
			}
			s.Reclaim()
			in = append(in[n:], add...)
			for c, worst := range s.Worst() {
				if known := s.paths.sum(c, s.groupCount(c)); known.Steps() < worst.Steps() {
					t.Fatalf("class %d: the set knows of %+v, the trees have %+v", c, known, worst)
				}
			}
		}
	})
}

func TestWorstAddsUpTheLongestPaths(t *testing.T) {
	rule := func(i int) Node { return Node(i<<5 | 1) }
	mem := make([]uint64, 64)
	mem[20], mem[21] = uint64(rule(1)), 0                               // a cut's nodes
	mem[22], mem[23] = uint64(newList(rule(2), 40, 5)), uint64(rule(3)) // and another's
	mem[24], mem[25] = uint64(newCut(0, 0, 1, 20)), uint64(newCut(0, 1, 1, 22))
	mem[30], mem[31] = uint64(newCut(1, 0, 1, 24)), 1 // a fork's pairs
	mem[32], mem[33] = uint64(rule(4)), 2
	for _, c := range []struct {
		name string
		root Node
		want Path
	}{
		{"no rule", 0, Path{1, 0, 0}},
		{"a rule", rule(1), Path{1, 1, 1}},
		{"a list", newList(rule(1), 40, 7), Path{1, 7, 1}},
		{"a cut to a rule and to nothing", newCut(0, 0, 1, 20), Path{2, 1, 1}},
		{"a cut to a list and to a rule", newCut(0, 0, 1, 22), Path{2, 5, 1}},
		{"a cut to cuts", newCut(1, 0, 1, 24), Path{3, 5, 1}},
		{"a fork", newFork(30, 2), Path{1 + 3 + 1, 5 + 1, 2}},
	} {
		mem[1] = uint64(c.root)
		if got := Worst(mem); got != [Classes]Path{{1, 0, 0}, c.want, {1, 0, 0}} {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}
