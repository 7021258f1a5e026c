package xdp

import (
	"slices"
	"testing"
)

// Rules of the trees are removed and get other ranks while no unit is free. Every change must still succeed.
func TestEntryIsReusedOnlyAfterTheTreesForgetIt(t *testing.T) {
	dp := openTest(t, Options{MaxRules: 256})
	dp.tables.hooks = map[hookKey]*hook{{}: nil} // keep to the order, as with an attached program
	s := stages{dp: dp}
	rules := s.tree(mustCounter(t, dp, "a"), 5, 2)
	mustAdd(t, dp, rules...)
	for dp.tables.entries.free > 0 {
		dp.tables.entries.alloc(1, 1)
	}
	grace := dp.tables.grace
	dp.tables.grace = func() error {
		for _, c := range dp.tables.forest.changed {
			if c.node != 0 && slices.Contains(dp.tables.entries.retired, unitOfTree(c.node)) {
				t.Errorf("unit %d becomes free while the trees lead to it", unitOfTree(c.node))
			}
		}
		return grace()
	}
	moved := rules[1]
	moved.Priority = 7
	s.exchange(t, rules[1:], []Rule{moved})
	if got := dp.Rules(); len(got) != 2 || got[1] != moved {
		t.Errorf("%d rules, the last one of priority %d", len(got), got[len(got)-1].Priority)
	}
}

// The hash table has no place for the key of a new rule of a known mask. The rule also needs a layer that no program parses yet.
func TestRuleMovedToTheTreesStillGetsItsLayersParsed(t *testing.T) {
	dp := openTest(t, Options{MaxRules: 256})
	id := mustCounter(t, dp, "a")
	v4 := exact4(1, 2, 3, 4, id)
	v4.Mask.Out.Flags |= FlagIPv6
	v6 := v4
	v6.Key.Out.Flags = FlagIPv6 | FlagL4
	mustAdd(t, dp, v4)
	mustAdd(t, dp, stages{dp: dp}.tree(id, 5, 0)...)
	for i := range dp.tables.table.slots {
		dp.tables.table.slots[i] = dp.tables.singles[0]
	}
	mustAdd(t, dp, v6)
	if need := needOf(&v6); need&^dp.tables.need != 0 || dp.tables.treeTuples[*v6.Mask.words()] == nil {
		t.Errorf("programs read %#x, want %#x", dp.tables.need, need)
	}
}
