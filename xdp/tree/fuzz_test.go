package tree

import (
	"math/rand/v2"
	"testing"
)

// FuzzExchange makes a set by two exchanges and compares it with the linear matcher. The invariants: each lookup finds
// the rule of the lowest rank that matches, and every word of the memory is free, retired, or reached once.
// A set has at most 62 rules: an input takes 2 ms of CPU. Sets of up to 510 took 15 ms; TestChangingSetAgreesWithTheLinearMatcher has sets of hundreds.
func FuzzExchange(f *testing.F) {
	f.Add(uint64(1), uint8(10), uint8(5), uint8(3))
	f.Add(uint64(2), uint8(100), uint8(100), uint8(50))
	f.Fuzz(func(t *testing.T, from uint64, first, second, gone uint8) {
		d := &drawn{g: rand.New(rand.NewPCG(from, 0))}
		s := New(make([]uint64, 1<<15), Options{Class: testClass})
		var rules []Rule
		for range first % 32 {
			rules = append(rules, d.rule())
		}
		if err := s.Exchange(nil, rules); err != nil {
			t.Fatal(err)
		}
		var remove []Entry
		kept := min(int(gone), len(rules))
		for _, r := range rules[:kept] {
			remove = append(remove, r.Entry)
		}
		var add []Rule
		for range second % 32 {
			add = append(add, d.rule())
		}
		s.Reclaim()
		if err := s.Exchange(remove, add); err != nil {
			t.Fatal(err)
		}
		rules = append(rules[kept:], add...)
		checkMemory(t, s)
		match := entries(rules)
		for range 20 {
			k := d.key(rules)
			if got, want := s.Lookup(&k, match), best(rules, &k); got != want {
				t.Fatalf("%d rules, key %x: entry %#x, the linear matcher has %#x", len(rules), k, got, want)
			}
		}
	})
}
