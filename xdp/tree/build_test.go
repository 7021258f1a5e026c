package tree

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

type namedSet struct {
	name string
	make func(g *rand.Rand) []Rule
}

func sets(sizes ...int) []namedSet {
	var out []namedSet
	for _, n := range sizes {
		out = append(out,
			namedSet{fmt.Sprintf("masks24.%d", n), func(g *rand.Rand) []Rule { return rule5s(g, setMasks(g, n), true) }},
			namedSet{fmt.Sprintf("masks200.%d", n), func(g *rand.Rand) []Rule { return rule5s(g, setLengths(g, n, 26), true) }},
			namedSet{fmt.Sprintf("masks4096.%d", n), func(g *rand.Rand) []Rule { return rule5s(g, setLengths(g, n, 0), true) }},
			namedSet{fmt.Sprintf("masks2500.%d", n), func(g *rand.Rand) []Rule { return rule5s(g, setLengths(g, n, 8), true) }},
			namedSet{fmt.Sprintf("ranges.%d", n), func(g *rand.Rand) []Rule { return rule5s(g, setRanges(g, n), true) }},
		)
		for _, p := range []string{"acl", "fw", "ipc"} {
			out = append(out, namedSet{fmt.Sprintf("%s.%d", p, n), func(g *rand.Rand) []Rule { return rule5s(g, setBench(g, p, n), false) }})
		}
	}
	return out
}

// TestLookup compares the walk with the linear matcher.
func TestLookup(t *testing.T) {
	for _, set := range sets(7, 100, 1000) {
		t.Run(set.name, func(t *testing.T) {
			g := rand.New(rand.NewPCG(1, 2))
			rules := set.make(g)
			s := New(make([]uint64, 1<<18), Options{Class: testClass})
			if err := s.Build(rules); err != nil {
				t.Fatal(err)
			}
			entry := entries(rules)
			for range 2000 {
				k := packet(g, &rules[g.IntN(len(rules))], 3)
				if got, want := s.Lookup(&k, entry), best(rules, &k); got != want {
					t.Fatalf("key %x: slot %#x, the linear matcher has %#x", k, got, want)
				}
			}
		})
	}
}

func TestTable(t *testing.T) {
	for _, set := range sets(1000, 16000, 65536) {
		g := rand.New(rand.NewPCG(1, 2))
		rules := set.make(g)
		s := New(make([]uint64, 1<<22), Options{Class: testClass})
		start := time.Now()
		err := s.Build(rules)
		took := time.Since(start)
		if err != nil {
			t.Logf("%-16s %v", set.name, err)
			continue
		}
		entry := entries(rules)
		var w Walk
		const n = 2000
		for range n {
			k := packet(g, &rules[g.IntN(len(rules))], 0)
			w.Lookup(s.mem.words, s.class, &k, entry)
		}
		root := s.mem.load(1)
		groups := 1
		if root.Kind() == KindFork {
			groups = root.Count()
		}
		t.Logf("%-16s n %5d groups %d | walked %.2f cuts %.2f lists %.2f entries %.2f | words/rule %.1f | %v", set.name, len(rules), groups,
			float64(w.Groups)/n, float64(w.Cuts)/n, float64(w.Lists)/n, float64(w.Entries)/n, float64(len(s.mem.words)-s.mem.free)/float64(len(rules)), took.Round(time.Millisecond))
	}
}
