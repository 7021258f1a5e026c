package tree

import (
	"testing"

	"github.com/flowtally/flowtally/internal/lab/classbench"
)

func TestLookupAgreesWithTheLinearMatcher(t *testing.T) {
	for name, from := range generated(7, 100, 1000) {
		t.Run(name, func(t *testing.T) {
			rules := rulesOf(from)
			s := New(make([]uint64, 1<<18), Options{Class: testClass})
			if err := s.Build(rules); err != nil {
				t.Fatal(err)
			}
			match := entries(rules)
			packets := append(classbench.Points(from, 1000, seed), classbench.Trace(from, 1000, classbench.Locality{}, seed)...)
			for _, p := range packets {
				k := keyOf(p)
				if got, want := s.Lookup(&k, match), best(rules, &k); got != want {
					t.Fatalf("key %x: entry %#x, the linear matcher has %#x", k, got, want)
				}
			}
		})
	}
}
