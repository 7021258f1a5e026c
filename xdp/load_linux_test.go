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
