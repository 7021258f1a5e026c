package xdp

import (
	"encoding/binary"
	"errors"
	"testing"

	"github.com/flowtally/flowtally/internal/lab/classbench"
	"github.com/flowtally/flowtally/internal/lab/need"
)

// fewBits are rules of which a packet may be compared with many.
func fewBits(n int) []Rule {
	rules := make([]Rule, n)
	for i, f := range classbench.FewBits(n, 7) {
		r := &rules[i]
		r.Order = uint32(i)
		r.Key.Out.Flags, r.Mask.Out.Flags = FlagIPv4|FlagL4, FlagIPv4|FlagL4
		for at, v := range []struct{ key, mask uint32 }{{f.Src, f.SrcMask}, {f.Dst, f.DstMask}} {
			binary.BigEndian.PutUint32(r.Key.Out.Addr[4*at:], v.key)
			binary.BigEndian.PutUint32(r.Mask.Out.Addr[4*at:], v.mask)
		}
		r.Ports[0].Src = Range(f.SrcPort)
	}
	return rules
}

// With the new rules, a packet could touch more than Options.WorstCost. The change must fail as a whole. Existing rules stay, can be
// removed, and are adopted by the next process whatever its bound.
func TestCostlyRulesAreRefused(t *testing.T) {
	need.BPF(t)
	dir := need.BPFFS(t) + "/flowtally-costly"
	open := func(worst int) *Datapath {
		t.Helper()
		dp, err := Open(Options{PinDir: dir, MaxRules: 4096, WorstCost: worst})
		if err != nil {
			t.Fatal(err)
		}
		return dp
	}
	dp := open(100)
	rules := fewBits(600)
	for i := range rules {
		c, err := dp.AllocCounter("f")
		if err != nil {
			t.Fatal(err)
		}
		rules[i].Counter = c.ID
	}
	if err := dp.Add(rules[:50]...); err != nil {
		t.Fatal(err)
	}
	before := dp.Cost()
	var costly *CostError
	err := dp.Add(rules[50:]...)
	if !errors.As(err, &costly) || !errors.Is(err, ErrCostly) || costly.Class != classIPv4 || costly.Worst.Steps() <= 100 || len(costly.Rules) < 10 {
		t.Fatalf("adding rules above the bound: %v, %d rules", err, len(costly.Rules))
	}
	if dp.Cost() != before || len(dp.Rules()) != 50 {
		t.Errorf("a refused change left %d rules and %+v, before were %+v", len(dp.Rules()), dp.Cost(), before)
	}
	if w := before.Worst[classIPv4].Steps(); before.Nodes+before.Entries > float64(w) || w > 100 || before.NS <= 0 {
		t.Errorf("the mean is %+v", before)
	}
	if err := dp.Close(); err != nil {
		t.Fatal(err)
	}

	dp = open(0)
	if err := dp.Add(rules[50:]...); err != nil {
		t.Fatal(err)
	}
	if err := dp.Close(); err != nil {
		t.Fatal(err)
	}
	dp = open(100)
	defer func() {
		if err := dp.Destroy(); err != nil {
			t.Error(err)
		}
	}()
	if n := len(dp.Rules()); n != len(rules) {
		t.Errorf("%d rules of %d in force were taken up", n, len(rules))
	}
	if err := dp.Remove(rules[:3]...); err != nil {
		t.Errorf("removing rules of a set above the bound: %v", err)
	}
}
