package xdp

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
)

// A program still running might count a packet of the last owner.
func TestFreedCounterIsReusedOnlyAfterAGracePeriod(t *testing.T) {
	dp := openTest(t, Options{MaxRules: 256, MaxCounters: 2})
	a, b := mustCounter(t, dp, "a"), mustCounter(t, dp, "b")
	if err := dp.FreeCounter(a); err != nil {
		t.Fatal(err)
	}
	if id, ok := dp.pool.next(); ok {
		t.Fatalf("counter %d may be taken at once", id)
	}
	good := dp.grace
	bad, err := newGrace(nil)
	if err != nil {
		t.Fatal(err)
	}
	bad.close()
	dp.grace = bad
	c, err := dp.AllocCounter("c")
	dp.grace = good
	if err == nil {
		t.Fatalf("counter %d was given out although the wait failed", c.ID)
	}
	if c, err = dp.AllocCounter("c"); err != nil || c.ID != a || c.ID == b {
		t.Errorf("after a grace period: counter %+v, %v; want %d", c, err, a)
	}
}

// A CPU without a block in the map would not be counted.
func TestPinsOfAnotherNumberOfCPUsAreRefused(t *testing.T) {
	dir := pinDir(t)
	dp, err := Open(Options{MaxRules: 256, PinDir: dir}) // makes the directory
	if err != nil {
		t.Fatal(err)
	}
	if err := dp.Close(); err != nil {
		t.Fatal(err)
	}
	if err := removePins(dir); err != nil {
		t.Fatal(err)
	}
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{cpus + 1, max(1, cpus-1)} {
		if n == cpus {
			continue
		}
		g, err := newGeometry(Options{MaxRules: 256}, n)
		if err != nil {
			t.Fatal(err)
		}
		m := newMaps()
		if err := m.create(g, nil); err != nil {
			t.Fatal(err)
		}
		metaOf(m.meta.words, g).format(g)
		if err := m.pin(dir); err != nil {
			t.Fatal(err)
		}
		if err := m.close(); err != nil {
			t.Fatal(err)
		}
		dp, err := Open(Options{MaxRules: 256, PinDir: dir})
		if err == nil {
			dp.Close()
		}
		if !errors.Is(err, ErrIncompatible) || !strings.Contains(err.Error(), "CPUs") {
			t.Errorf("pins for %d CPUs on a machine of %d: %v", n, cpus, err)
		}
		if err := removePins(dir); err != nil {
			t.Fatal(err)
		}
	}
}

// A process added a rule, and died before it loaded programs that parse its layer. The next one must not keep the old programs.
func TestProgramsThatLackALayerAreExchanged(t *testing.T) {
	w := testWire(t)
	dir := pinDir(t)
	dp := openTest(t, Options{MaxRules: 256, PinDir: dir})
	id := mustCounter(t, dp, "a")
	rule := func(proto uint8, flags Flags) Rule {
		r := Rule{Counter: id}
		r.Key.Out.Flags, r.Mask.Out.Flags = flags, FlagIPv4
		r.Key.Out.Proto, r.Mask.Out.Proto = proto, 0xff
		return r
	}
	mustAdd(t, dp, rule(6, FlagIPv4), rule(1, FlagIPv4)) // two keys, so that the mask is hashed
	attach(t, dp, w.Near, AttachOptions{Mode: ModeNative, Ingress: true})
	if dp.constants.need&needIPv6 != 0 {
		t.Fatal("the programs parse IPv6 already: the test shows nothing")
	}
	late := rule(17, 0)
	dp.mu.Lock()
	loads := 0
	dp.tables.load = func() error { loads++; return nil }
	err := dp.tables.come(t.Context(), []swap{{nil, &late}})
	dp.mu.Unlock()
	if err != nil || loads != 1 {
		t.Fatalf("a rule that needs IPv6: %d loads, %v", loads, err)
	}
	if err := dp.Close(); err != nil {
		t.Fatal(err)
	}
	dp = openTest(t, Options{MaxRules: 256, PinDir: dir})
	p := attachedProgram(t, dp)
	defer p.Close()
	runFrame(t, p, udp6([16]byte{0x20}))
	if got := readOne(t, dp, id); got != (Pair{1, 80}) {
		t.Errorf("a packet of the rule that was added last: counted %+v", got)
	}
	if n := dp.Stats().Programs; n != 1 {
		t.Errorf("%d programs were loaded, want 1", n)
	}
}

// removePins removes the pins of a directory that no rule set has open.
func removePins(dir string) error {
	all, err := os.ReadDir(dir)
	for _, e := range all {
		err = errors.Join(err, os.Remove(filepath.Join(dir, e.Name())))
	}
	return err
}
