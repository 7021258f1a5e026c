package xdp

import (
	"errors"
	"testing"
)

// dense are rules that all match one packet, none of which covers another in a region that a tree can cut: their masks
// have single bits, far from one another, of more places than a tree has cuts.
func dense(n int) (rules []Rule) {
	for i := range n {
		r := Rule{Order: uint32(i)}
		r.Key.Out.Flags, r.Mask.Out.Flags = FlagIPv6|FlagL4, FlagIPv6|FlagL4
		for at := 0; at < 32; at++ {
			r.Mask.Out.Addr[at] = 0x10
		}
		r.Ports[0] = Ports{Src: Range{First: uint16(1 + i%100), Last: uint16(65534 - i/100)}, Dst: Range{First: 1, Last: 65534}}
		rules = append(rules, r)
	}
	return rules
}

func TestDenseRulesAreRefusedWithTheirOwnSentinel(t *testing.T) {
	_, err := NewModel(dense(8500), 1<<14, 0, true)
	if !errors.Is(err, ErrDense) || errors.Is(err, ErrFull) {
		t.Errorf("%v, want ErrDense", err)
	}
	t.Log(err)
}
