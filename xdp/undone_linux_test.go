package xdp

import (
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/flowtally/flowtally/internal/lab"
)

// asked is a context that calls f each time that it is asked for its error.
type asked struct {
	context.Context
	f func() error
}

func (a asked) Err() error { return a.f() }

// wide draws rules with masks of their own, for the trees.
func wide(n int, counter uint32) []Rule {
	rng := rand.New(rand.NewPCG(1, 1))
	rules := make([]Rule, n)
	for i := range rules {
		r := &rules[i]
		r.Counter, r.Priority, r.Order = counter, 9, uint32(i)
		r.Key.Out.Flags, r.Mask.Out.Flags = FlagIPv4, FlagIPv4
		binary.BigEndian.PutUint64(r.Mask.Out.Addr[:], rng.Uint64())
		binary.BigEndian.PutUint64(r.Key.Out.Addr[:], rng.Uint64()&binary.BigEndian.Uint64(r.Mask.Out.Addr[:]))
	}
	return rules
}

// A change adds a rule that wins all packets of another one, and many rules for the trees. It is cancelled, or the trees
// refuse their rules: no packet was decided by it. The packets are sent while the trees are built.
func TestNoPacketIsDecidedByAChangeThatTheTreesRefuse(t *testing.T) {
	const rules = 2100 // too many for one tree, whose build takes longest
	for name, test := range map[string]struct {
		bound, asks int // the call is cancelled when it asks for this time; 0: never
		want        error
	}{
		"cancelled":  {asks: rules + 20, want: context.Canceled},
		"too costly": {bound: 8, want: ErrCostly},
		"taken":      {},
	} {
		t.Run(name, func(t *testing.T) {
			dp := openTest(t, Options{MaxRules: 2 * rules, WorstCost: test.bound})
			before, winner := mustCounter(t, dp, "before"), mustCounter(t, dp, "winner")
			first := exact4(1, 2, 3, 4, before)
			first.Priority = 5
			mustAdd(t, dp, first)
			p := program(t, dp, HookIngress, 0)
			frame := udp4(1, 2, 3, 4, 64)

			come := append(wide(rules, winner), exact4(1, 2, 3, 4, winner))
			sent := uint64(0)
			err := dp.ExchangeContext(asked{t.Context(), func() error {
				runFrame(t, p, frame)
				if sent++; test.asks > 0 && sent >= uint64(test.asks) {
					return context.Canceled
				}
				return nil
			}}, nil, come)
			if !errors.Is(err, test.want) || errors.Is(err, ErrUndone) {
				t.Fatalf("the call returns %v", err)
			}
			if got := readOne(t, dp, before).Packets; sent < 2 || err != nil && got != sent || err == nil && got+1 < sent {
				t.Errorf("%d packets of %d were decided by the rule from before", got, sent)
			}
			if n := dp.Stats().Rules; err != nil && n != 1 || err == nil && n != 1+len(come) {
				t.Errorf("%d rules are left", n)
			}
			if err := dp.verify(); err != nil {
				t.Error(err)
			}
		})
	}
}

// A hook is attached while the trees of many rules are built. It counts by these rules as soon as they are there.
func TestAHookIsAttachedWhileTreesAreBuilt(t *testing.T) {
	w := testWire(t)
	dp := openTest(t, Options{MaxRules: 4096})
	counter := mustCounter(t, dp, "many")
	attached := false
	err := dp.ExchangeContext(asked{t.Context(), func() error {
		if attached || !dp.mu.TryLock() {
			return nil
		}
		dp.mu.Unlock()
		attached = true
		attach(t, dp, w.Near, AttachOptions{Mode: ModeNative, Ingress: true})
		return nil
	}}, nil, wide(2100, counter))
	if err != nil || !attached {
		t.Fatalf("the call returns %v; attached meanwhile: %t", err, attached)
	}

	ids := floodRules(t, dp, 2)
	s := flood(t, w.Far, len(ids), 100, lab.SenderOptions{})
	if err := s.Run(t.Context(), 2000); err != nil {
		t.Fatal(err)
	}
	compareCounts(t, dp, ids, s)
}
