package xdp

import (
	"testing"
	"time"
)

func TestVerifierWorkOfTheMostMasksIsBounded(t *testing.T) {
	for _, n := range []int{1, 2, 8, 32, maxTuples} {
		dp := openTest(t, Options{MaxRules: 1024})
		id := mustCounter(t, dp, "a")
		var rules []Rule
		for i := range n {
			for j := range 2 {
				r := exact4(1, 2, 3, uint16(j), id)
				r.Order = uint32(2*i + j)
				r.Mask.Out.Addr[3] = byte(0xff - i)
				r.Key.Out.Addr[3] = 0
				rules = append(rules, r)
			}
		}
		start := time.Now()
		mustAdd(t, dp, rules...)
		added := time.Since(start)
		for _, h := range []Hook{HookIngress, HookEgress} {
			start := time.Now()
			program(t, dp, h, 1)
			t.Logf("%d tuples, %s: %d instructions verified, loaded in %v; %d rules added in %v", n, h, dp.Stats().Insns, time.Since(start), len(rules), added)
			if dp.Stats().Insns > 500_000 {
				t.Errorf("%d instructions for %d tuples, of 1,000,000 that the kernel allows", dp.Stats().Insns, n)
			}
		}
	}
}

func TestVerifierWorkOfAllLayersIsBounded(t *testing.T) {
	for _, n := range []int{1, 30} {
		dp := openTest(t, Options{MaxRules: 1024})
		id := mustCounter(t, dp, "a")
		var rules []Rule
		for i := range 2 * n {
			r := Rule{Counter: id, Order: uint32(i)}
			for w := range r.Mask.words() {
				r.Mask.words()[w] = ^uint64(i / 2)
			}
			r.Mask.Out.Proto, r.Mask.Out.L4 = 0, [4]byte{} // a packet of any tunnel
			askNothing(&r.Mask)
			r.Key.words()[0] = uint64(i&1) << 63
			rules = append(rules, r)
		}
		mustAdd(t, dp, rules...)
		for _, h := range []Hook{HookIngress, HookEgress} {
			start := time.Now()
			program(t, dp, h, 1)
			t.Logf("%d tuples, %s: %d instructions verified, loaded in %v", n, h, dp.Stats().Insns, time.Since(start))
			if dp.Stats().Insns > 500_000 {
				t.Errorf("%d instructions, of 1,000,000 that the kernel allows", dp.Stats().Insns)
			}
		}
	}
}

// askNothing lets a mask look at no answer of a set.
func askNothing(mask *Key) {
	for _, h := range []*Headers{&mask.Out, &mask.In} {
		h.Label[0] = 0
		h.Label[1] &= 0xf
	}
}

// A rule with a range of ports is in the trees.
func TestVerifierWorkOfTreesIsBounded(t *testing.T) {
	for _, tt := range []struct {
		name string
		mask func(m *Key)
	}{
		{"IPv4", func(m *Key) {}},
		{"IPv6", func(m *Key) { m.Out.Addr[31] = 1 }},
		{"VLAN", func(m *Key) { m.Out.VLAN[0][1] = 1 }},
		{"TOS", func(m *Key) { m.Out.TOS = 1 }},
		{"TCP flags", func(m *Key) { m.Out.TCPFlags, m.Out.TCPHigh = 1, 1 }},
		{"MAC", func(m *Key) { m.Out.EthSrc[5] = 1 }},
		{"outer", func(m *Key) {
			for w := range levelWords {
				m.words()[w] = 1 << 8
			}
		}},
		{"all", func(m *Key) {
			for w := range m.words() {
				m.words()[w] = 1 << 8
			}
		}},
	} {
		for _, exact := range []int{0, 1, 3} { // masks that are hashed
			dp := openTest(t, Options{MaxRules: 8192})
			id := mustCounter(t, dp, "a")
			ranged := Rule{Counter: id}
			tt.mask(&ranged.Mask)
			ranged.Mask.Out.Flags |= FlagL4
			ranged.Key.Out.Flags = ranged.Mask.Out.Flags
			ranged.Mask.Out.L4 = [4]byte{}
			ranged.Ports[0].Dst = Range{First: 1, Last: 1000}
			rules := []Rule{ranged}
			for i := range exact * 1000 {
				r := exact4(uint32(i), 2, 3, uint16(i), id)
				r.Order = uint32(1 + i)
				tt.mask(&r.Mask)
				r.Mask.Out.Addr[3] = byte(0xff - i%exact)
				r.Key = r.Key.Under(r.Mask)
				rules = append(rules, r)
			}
			mustAdd(t, dp, rules...)
			for _, h := range []Hook{HookIngress, HookEgress} {
				program(t, dp, h, 1)
				t.Logf("%s, %d hashed masks, %s: %d instructions verified", tt.name, len(dp.constants.tuples), h, dp.Stats().Insns)
				if dp.Stats().Insns > 500_000 {
					t.Errorf("%s, %d hashed masks, %s: %d instructions, of 1,000,000 that the kernel allows",
						tt.name, len(dp.constants.tuples), h, dp.Stats().Insns)
				}
			}
		}
	}
}
