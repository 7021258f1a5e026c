package xdp

import (
	"testing"

	"github.com/cilium/ebpf"
)

// Some rules need new programs, and the load fails. The rules that were there still count.
func TestFailedLoadLeavesTheOldRulesAndNoTrace(t *testing.T) {
	w := testWire(t)
	dp := openTest(t, Options{MaxRules: 1024})
	id := mustCounter(t, dp, "a")
	first := exact4(1, 2, 3, 4, id)
	mustAdd(t, dp, first)
	attach(t, dp, w.Near, AttachOptions{Mode: ModeNative, Ingress: true})
	good := dp.loader.spec
	bad := good.Copy()
	for _, p := range bad.Programs {
		p.Instructions = p.Instructions[1:]
	}
	dp.loader.spec = bad
	second := exact4(1, 2, 3, 5, id) // a second key: the tuple is hashed from the next load on
	second.Order = 1
	third := exact4(1, 2, 3, 6, id) // a new mask
	third.Order, third.Mask.Out.TOS = 2, 0xff
	if err := dp.Add(second, third); err == nil {
		t.Fatal("a program that is not whole was loaded")
	}
	check := func(rules, packets int) {
		t.Helper()
		if err := dp.verify(); err != nil {
			t.Error(err)
		}
		if n := len(dp.Rules()); n != rules {
			t.Errorf("%d rules, want %d", n, rules)
		}
		before := readOne(t, dp, id).Packets
		var p *ebpf.Program
		for _, h := range dp.hooks {
			p = h.prog
		}
		for port := range uint16(3) {
			runFrame(t, p, udp4(1, 2, 3, 4+port, 64))
		}
		if got := readOne(t, dp, id).Packets - before; got != uint64(packets) {
			t.Errorf("counted %d packets, want %d", got, packets)
		}
	}
	check(1, 1)
	dp.loader.spec = good
	mustAdd(t, dp, second, third)
	check(3, 3)
	if err := dp.Remove(first, second); err != nil {
		t.Fatal(err)
	}
	check(1, 1)
	mustAdd(t, dp, second)
	check(2, 2)
}
