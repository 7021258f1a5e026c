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
