package xdp

import (
	"testing"

	"github.com/flowtally/flowtally/internal/lab"
)

// Interfaces that no rule names share one program for each kind of hook. A rule that names one counts there alone, from the
// return of Add on, and a process that takes up the pins knows which interface has a program of its own.
func TestInterfacesShareTheProgramUntilARuleNamesOne(t *testing.T) {
	const packets = 10
	wires := []*lab.Wire{testWire(t), testWire(t), testWire(t)}
	o := Options{MaxRules: 1024, PinDir: pinDir(t)}
	dp := openTest(t, o)
	any, one := mustCounter(t, dp, "any"), mustCounter(t, dp, "one")
	rule := exact4(0x0a000001, 0x0a000002, 1000, 53, any)
	rule.Order = 2
	mustAdd(t, dp, rule)
	before := dp.Stats().Programs
	both := AttachOptions{Mode: ModeTCX, Ingress: true, Egress: true}
	for _, w := range wires {
		attach(t, dp, w.Near, both)
	}
	if got := dp.Stats().Programs - before; got != 2 {
		t.Errorf("%d programs loaded for %d interfaces, want one for each direction", got, len(wires))
	}

	named := exact4(0x0a000001, 0x0a000002, 1000, 53, one)
	port, err := dp.Port(wires[1].Near.Name)
	if err != nil {
		t.Fatal(err)
	}
	named.Key.Out.Port, named.Mask.Out.Port = port, 0xffff
	second := exact4(0x0a000001, 0x0a000002, 1000, 54, one) // so that later rules of the mask take no load
	second.Key.Out.Port, second.Mask.Out.Port = port, 0xffff
	mustAdd(t, dp, named, second)
	send := func() {
		t.Helper()
		for _, w := range wires {
			arrive(t, w.Far, packets, udp4(0x0a000001, 0x0a000002, 1000, 53, 100))
		}
	}
	send()
	if a, b := readOne(t, dp, any).Packets, readOne(t, dp, one).Packets; a != 2*packets || b != packets {
		t.Errorf("counted %d on all interfaces and %d on the named one, want %d and %d", a, b, 2*packets, packets)
	}

	if err := dp.Close(); err != nil {
		t.Fatal(err)
	}
	dp = openTest(t, o)
	other := mustCounter(t, dp, "other")
	last := named
	if port, err = dp.Port(wires[2].Near.Name); err != nil {
		t.Fatal(err)
	}
	last.Key.Out.Port, last.Counter = port, other
	before = dp.Stats().Programs
	mustAdd(t, dp, last)
	if got := dp.Stats().Programs - before; got != 2 {
		t.Errorf("%d programs loaded for one interface that a rule names, want one for each direction", got)
	}
	send()
	for _, c := range []struct {
		name string
		id   uint32
		want uint64
	}{{"all interfaces", any, 3 * packets}, {"the first named one", one, 2 * packets}, {"the second", other, packets}} {
		if got := readOne(t, dp, c.id).Packets; got != c.want {
			t.Errorf("counted %d on %s, want %d", got, c.name, c.want)
		}
	}
}
