package xdp

import (
	"errors"
	"strings"
	"testing"
)

// The verifier limits offsets into a map value, so many counters of many CPUs are too much. They must be refused before a map is
// made.
func TestCountersBeyondTheReachOfProgramsAreRefused(t *testing.T) {
	for _, tc := range []struct {
		counters, cpus int
		fit            string // "": accepted
	}{
		{1 << 20, 16, ""}, {1 << 20, 32, "524288 counters fit"}, {1 << 19, 32, ""}, {1 << 16, 256, ""}, {1 << 18, 1024, "16384 counters fit"},
		{1 << 14, 1024, ""},
	} {
		g, err := newGeometry(Options{MaxRules: 1024, MaxCounters: tc.counters}, tc.cpus)
		if tc.fit == "" {
			if err != nil || g.counterBytes() >= maxOffset {
				t.Errorf("%d counters of %d CPUs: %d bytes, %v", tc.counters, tc.cpus, g.counterBytes(), err)
			}
		} else if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), tc.fit) {
			t.Errorf("%d counters of %d CPUs: %v, want that %s", tc.counters, tc.cpus, err, tc.fit)
		}
	}
	for _, rules := range []int{1, MostRules} {
		g, err := newGeometry(Options{MaxRules: rules, MaxCounters: 1}, 1)
		if most := max(g.slotBytes(), g.entryBytes(), g.treeBytes()); err != nil || most >= maxOffset {
			t.Errorf("%d rules: a map of %d bytes, %v", rules, most, err)
		}
	}
}

// A rule that matches every packet has no words to store. Its unit still identifies it.
func TestRuleWithoutAMaskHasItsOwnEntry(t *testing.T) {
	rules := []Rule{{Order: 1}, {Order: 2}}
	m, err := NewModel(rules, 16, 0, true)
	if err != nil {
		t.Fatal(err)
	}
	if _, order, _ := m.Lookup(&rules[0], func() uint64 { return 5 }); order != 1 {
		t.Errorf("rule %d wins", order)
	}
	for _, u := range m.hashed {
		for _, c := range u.chains {
			if len(c.entries) != 2 || c.entries[0] == c.entries[1] {
				t.Errorf("the rules have the units %v", c.entries)
			}
		}
	}
}
