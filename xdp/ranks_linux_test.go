package xdp

import "testing"

// A removal looks at the other rules of the trees only if it took the best one, also if that has the rank 0. A look takes 15 ns a rule.
func TestRemovalLooksForTheBestRuleOnlyIfItIsGone(t *testing.T) {
	dp := openTest(t, Options{MaxRules: 64})
	id := mustCounter(t, dp, "all")
	rule := func(order uint32) Rule {
		r := exact4(0x0a000001+order, 2, 3, 4, id)
		r.Key.Out.L4, r.Mask.Out.L4 = [4]byte{}, [4]byte{}
		r.Ports[0].Dst = Range{First: 100, Last: 200} // no hash finds a range
		r.Order = order
		return r
	}
	mustAdd(t, dp, rule(0), rule(1), rule(2))
	if n := len(dp.tables.treeTuples); n != 1 {
		t.Fatalf("%d masks in trees, want 1", n)
	}

	// A look would not find the best rule.
	for _, u := range dp.tables.treeTuples {
		for key, c := range u.chains {
			if dp.tables.entries.rank(c.entries[0]) == 0 {
				delete(u.chains, key)
				defer func() { u.chains[key] = c }()
			}
		}
	}
	if err := dp.Remove(rule(2)); err != nil {
		t.Fatal(err)
	}
	if got := dp.tables.forest.best; got != 0 {
		t.Errorf("the best rank is %d behind the removal of another rule, want 0", got)
	}
}
