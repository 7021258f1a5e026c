package tree

import (
	"testing"

	"github.com/flowtally/flowtally/internal/lab/classbench"
)

// The wide rule is in thousands of leaves. Removing it divides the set into groups.
func TestWideRemovalDividesASingleTree(t *testing.T) {
	for _, f := range classbench.Families() {
		t.Run(f.String(), func(t *testing.T) {
			from := classbench.Generate(f, 500, seed)
			wide := classbench.Rule{SrcPort: classbench.Range{First: 1, Last: 65534}, DstPort: classbench.Range{First: 1, Last: 65534}}
			from = append(from, wide)
			rules := rulesOf(from)
			s := New(make([]uint64, 1<<21), Options{Class: testClass})
			if err := s.Build(rules); err != nil {
				t.Fatal(err)
			}
			if n := s.Trees()[1]; n != 1 {
				t.Errorf("%d trees of IPv4", n)
			}
			t.Logf("%d words", s.Words())
			match := entries(rules)
			check := func() {
				t.Helper()
				checkMemory(t, s)
				for _, p := range append(classbench.Points(from, 300, seed), classbench.Trace(from, 300, classbench.Locality{}, seed)...) {
					k := keyOf(p)
					if got, want := s.Lookup(&k, match), best(rules, &k); got != want {
						t.Fatalf("key %x: entry %#x, the linear matcher has %#x", k, got, want)
					}
				}
			}
			check()
			for len(rules) > 450 {
				last := rules[len(rules)-1] // the wide rule, then the rules with the fewest bits
				if err := s.Exchange([]Entry{last.Entry}, nil); err != nil {
					t.Fatal(err)
				}
				rules = rules[:len(rules)-1]
				s.Reclaim()
				if s.single {
					t.Fatal("the set is not divided")
				}
			}
			check()
			t.Logf("%d trees after 50 changes", s.Trees()[1])
		})
	}
}
