package xdp

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/flowtally/flowtally/internal/lab"
)

// Overlapping rules get other ranks under traffic, again and again, but their order stays. So the same rule must count each packet.
func TestRulesThatKeepTheirOrderDecideAllTheWhile(t *testing.T) {
	const packets = 600_000
	w := testWire(t)
	dp := openTest(t, Options{MaxRules: 1024})
	ids := floodRules(t, dp, 1)
	narrow := dp.Rules()[0]
	wide := narrow
	wide.Mask.Out.L4, wide.Key.Out.L4 = [4]byte{}, [4]byte{}
	wide.Counter = mustCounter(t, dp, "wide")
	wide.Priority = narrow.Priority + 1
	mustAdd(t, dp, wide)
	attach(t, dp, w.Near, AttachOptions{Mode: ModeNative, Ingress: true})
	s := flood(t, w.Far, 1, 100, lab.SenderOptions{})
	var stop atomic.Bool
	done := make(chan error, 1)
	go func() {
		err := s.Run(context.Background(), packets)
		stop.Store(true)
		done <- err
	}()
	rounds := 0
	for ; !stop.Load(); rounds++ {
		old := []Rule{narrow, wide}
		up := uint16(10)
		if rounds%2 == 1 {
			up = ^up + 1
		}
		narrow.Priority += up
		wide.Priority += up
		if err := dp.Exchange(old, []Rule{narrow, wide}); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	compareCounts(t, dp, ids, s)
	if got := readOne(t, dp, wide.Counter); got != (Pair{}) {
		t.Errorf("the rule that loses has counted %+v", got)
	}
	t.Logf("%d exchanges", rounds)
}

func TestFailedExchangeLeavesTheRulesUnchanged(t *testing.T) {
	dp := openTest(t, Options{MaxRules: 256})
	a, b := mustCounter(t, dp, "a"), mustCounter(t, dp, "b")
	one, two := exact4(1, 2, 3, 4, a), exact4(1, 2, 3, 5, a)
	one.Priority, two.Priority, two.Order = 5, 5, 1
	stays := exact4(1, 2, 3, 4, b)
	stays.Priority = 3
	mustAdd(t, dp, one, two, stays)
	want := dp.Rules()
	other := one
	other.Priority = 1
	taken := one
	taken.Priority = 3
	var many []Rule
	for i := range 300 {
		many = append(many, exact4(7, 7, 7, uint16(i), b))
	}
	unknown := exact4(9, 9, 9, 9, a)
	for _, tt := range []struct {
		name       string
		old, fresh []Rule
		is         error
	}{
		{"no room for what is new", []Rule{one, two}, append([]Rule{other}, many...), ErrFull},
		{"no such rule", []Rule{one, unknown}, []Rule{other}, ErrNotFound},
		{"the rank of a rule that stays", []Rule{one}, []Rule{taken}, ErrExists},
		{"two of one rank", []Rule{one}, []Rule{other, {Key: other.Key, Mask: other.Mask, Priority: 1, Counter: b}}, ErrExists},
	} {
		if err := dp.Exchange(tt.old, tt.fresh); !errors.Is(err, tt.is) {
			t.Errorf("%s: %v", tt.name, err)
		}
		if got := dp.Rules(); len(got) != len(want) || got[0] != want[0] || got[1] != want[1] || got[2] != want[2] {
			t.Errorf("%s: %d rules, want %d, or others", tt.name, len(got), len(want))
		}
		if err := dp.verify(); err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}

func TestRenamedCounterKeepsItsCountOverARestart(t *testing.T) {
	dir := pinDir(t)
	dp := openTest(t, Options{MaxRules: 256, PinDir: dir})
	c, err := dp.AllocCounter("a name that is rather longer than the next")
	if err != nil {
		t.Fatal(err)
	}
	mustCounter(t, dp, "there")
	for range 3 { // the two places of an owner take turns
		for _, owner := range []string{"b", "another"} {
			if err := dp.Rename(c.ID, owner); err != nil {
				t.Fatal(err)
			}
			if err := dp.Close(); err != nil {
				t.Fatal(err)
			}
			dp = openTest(t, Options{MaxRules: 256, PinDir: dir})
			got, err := dp.AllocCounter(owner)
			if err != nil || got.ID != c.ID || got.Cookie != c.Cookie || !got.Adopted {
				t.Fatalf("owner %q has %+v, %v; want that of %+v", owner, got, err, c)
			}
		}
	}
	if err := dp.Rename(c.ID, "there"); !errors.Is(err, ErrExists) {
		t.Errorf("an owner that has one: %v", err)
	}
	if err := dp.Rename(200, "nobody"); !errors.Is(err, ErrNotFound) {
		t.Errorf("a counter that is free: %v", err)
	}
	if err := dp.Rename(c.ID, "a\x00b"); !errors.Is(err, ErrInvalid) {
		t.Errorf("a name with a zero: %v", err)
	}
}
