package tree

import (
	"errors"
	"testing"
)

// The exchange is stopped at the first call of Stop, then at the second, the fourth, the eighth and so on, until it succeeds.
func TestStoppedExchangeLeavesTheSetAsItWas(t *testing.T) {
	rules := hard(2000)["crossed"]
	few, many := rules[:100], rules[100:]
	s := New(make([]uint64, 1<<19), Options{Class: testClass})
	if err := s.Build(few); err != nil {
		t.Fatal(err)
	}
	free := s.mem.free
	match := entries(rules)
	before := make([]Entry, len(few))
	for i := range few {
		before[i] = s.Lookup(&few[i].Key, match)
	}

	errStop := errors.New("stopped")
	stops := 0
	for ; ; stops++ {
		left := 1<<stops - 1
		s.Stop = func() error {
			if left--; left < 0 {
				return errStop
			}
			return nil
		}
		err := s.Exchange(nil, many)
		if err == nil {
			break
		}
		if !errors.Is(err, errStop) {
			t.Fatal(err)
		}
		if s.Len() != len(few) || s.mem.free != free {
			t.Fatalf("stop %d leaves %d rules of %d, and %d free words of %d", stops, s.Len(), len(few), s.mem.free, free)
		}
		checkMemory(t, s)
		for i := range few {
			if got := s.Lookup(&few[i].Key, match); got != before[i] {
				t.Fatalf("after stop %d the key of rule %d finds %#x, want %#x", stops, i, got, before[i])
			}
		}
	}
	if stops < 5 {
		t.Errorf("the change asked fewer than %d times", 1<<stops)
	}
	if s.Len() != len(rules) {
		t.Errorf("%d rules, want %d", s.Len(), len(rules))
	}
	t.Logf("%d stops", stops)
}

// Many rules are added to few, and taken back. That takes no more work than to build the trees of the few: a caller that
// gives up does not wait for the leaves of the many.
func TestTakingBackManyRulesBuildsTheTreesOfTheOthers(t *testing.T) {
	rules := hard(4000)["crossed"]
	few, many := rules[:20], rules[20:]
	s := New(make([]uint64, 1<<20), Options{Class: testClass})
	if err := s.Build(few); err != nil {
		t.Fatal(err)
	}
	building := s.builder.built
	if err := s.Exchange(nil, many); err != nil {
		t.Fatal(err)
	}
	added := s.builder.built

	var gone []Entry
	for i := range many {
		gone = append(gone, many[i].Entry)
	}
	if err := s.Exchange(gone, nil); err != nil {
		t.Fatal(err)
	}
	removing := s.builder.built - added
	t.Logf("%d nodes to build few rules, %d to add many, %d to take these back", building, added-building, removing)
	if removing > 2*building {
		t.Errorf("%d nodes are built to take rules back, %d to build the others", removing, building)
	}
	s.Reclaim()
	checkMemory(t, s)
	match := entries(rules)
	for i := range few {
		if s.Lookup(&few[i].Key, match) == 0 {
			t.Errorf("rule %d is not found", i)
		}
	}
}

// Between two calls of Stop a build does a bounded number of steps, also near a root, where one window divides thousands of
// rules among thousands of children.
func TestBuildAsksOftenWhetherToStop(t *testing.T) {
	const most = stepsPerStop + sampled*copies // one window is judged as a whole
	all := 0
	for name, rules := range hard(4000) {
		s := New(make([]uint64, 1<<20), Options{Class: testClass})
		asks, longest := 0, 0
		s.Stop = func() error {
			asks++
			if s.builder != nil {
				longest = max(longest, s.builder.steps)
			}
			return nil
		}
		if err := s.Build(rules); err != nil {
			t.Logf("%s: %v", name, err)
		}
		t.Logf("%s: %d nodes, %d calls, at most %d steps between two", name, s.builder.built, asks, longest)
		if longest > most {
			t.Errorf("%s: %d steps between two calls, want at most %d", name, longest, most)
		}
		all += asks
	}
	if all < 100 {
		t.Errorf("all builds together have asked %d times", all)
	}
}
