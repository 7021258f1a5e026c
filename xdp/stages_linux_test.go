package xdp

import (
	"context"
	"testing"

	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/internal/lab/times"
)

// stages is a rule set under traffic of one flow, which the rule base counts when no other rule does.
type stages struct {
	dp   *Datapath
	base uint32
}

func newStages(t *testing.T) stages {
	t.Helper()
	w := testWire(t)
	dp := openTest(t, Options{MaxRules: 4096})
	s := stages{dp, mustCounter(t, dp, "base")}
	other := mustCounter(t, dp, "other")
	mustAdd(t, dp, exact4(1, 2, 3, 4, other), exact4(1, 2, 3, 5, other)) // the mask is hashed
	base := s.tree(s.base, 9, 0)[0]
	base.Ports[0].Dst.Last++
	mustAdd(t, dp, base)
	attach(t, dp, w.Near, AttachOptions{Mode: ModeNative, Ingress: true})
	sender := flood(t, w.Far, 1, 100, lab.SenderOptions{})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- sender.Run(ctx, 1<<40) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return s
}

// known is a rule of a mask that is hashed.
func (s stages) known(counter uint32, priority uint16, _ int) []Rule {
	r := exact4(0x0a000001, 0x0a000002, 1000, 53, counter)
	r.Priority = priority
	return []Rule{r}
}

// tree has rules for the trees. The first one counts the flow; the others make a change of the trees take its time.
func (s stages) tree(counter uint32, priority uint16, more int) []Rule {
	var rules []Rule
	for i := range uint32(1 + more) {
		r := exact4(0x0a000001+i, 0x0a000002, 1000, 0, counter)
		r.Priority, r.Order = priority, i
		r.Mask.Out.L4 = [4]byte{255, 255}
		r.Ports[0].Dst = Range{First: 50, Last: 60}
		rules = append(rules, r)
	}
	return rules
}

// unread has rules for the trees, of a field that no program reads before.
func (s stages) unread(counter uint32, priority uint16, more int) []Rule {
	rules := s.tree(counter, priority, more)
	for i := range rules {
		rules[i].Key.Out.TTL, rules[i].Mask.Out.TTL = 64, 0xff
	}
	return rules
}

// fresh has rules of a new mask, so many that it is hashed.
func (s stages) fresh(counter uint32, priority uint16, _ int) []Rule {
	var rules []Rule
	for i := range 60 {
		r := exact4(0x0a000001, 0x0a000002, 1000, 53, counter)
		r.Priority, r.Order = priority, uint32(i)
		if i > 0 {
			r.Key.Out.L4[3] = byte(100 + i)
		}
		r.Key.Out.L4, r.Mask.Out.L4 = [4]byte{2: 0, 3: r.Key.Out.L4[3]}, [4]byte{2: 255, 3: 255}
		rules = append(rules, r)
	}
	return rules
}

// counts waits until a counter counts.
func (s stages) counts(t *testing.T, id uint32) {
	t.Helper()
	was := readOne(t, s.dp, id)
	lab.Eventually(t, "packets", func() bool { return readOne(t, s.dp, id).Packets > was.Packets+100 })
}

func (s stages) exchange(t *testing.T, old, fresh []Rule) {
	t.Helper()
	if err := s.dp.Exchange(old, fresh); err != nil {
		t.Fatal(err)
	}
}

// Two new rules match all packets of the traffic. They are added and removed together.
func TestTheWorseOfTwoNewRulesNeverCounts(t *testing.T) {
	type rules = func(s stages, counter uint32, priority uint16, more int) []Rule
	for _, tt := range []struct {
		name          string
		better, worse rules
		more          int
	}{
		{"a new hashed mask and the trees", stages.fresh, stages.tree, 0},
		{"a new hashed mask and a known one", stages.fresh, stages.known, 0},
		{"a new field and the trees", stages.unread, stages.tree, 200},
		{"a new field and a known mask", stages.unread, stages.known, 200},
		{"the trees and a known mask", stages.tree, stages.known, 200},
		{"a known mask and the trees", stages.known, stages.tree, 200},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newStages(t)
			better, worse := mustCounter(t, s.dp, "better"), mustCounter(t, s.dp, "worse")
			both := append(tt.worse(s, worse, 5, tt.more), tt.better(s, better, 4, tt.more)...)
			for round := range times.Brief(10, 3) {
				s.counts(t, s.base)
				s.exchange(t, nil, both)
				if got := readOne(t, s.dp, worse); got != (Pair{}) {
					t.Fatalf("round %d: after both came, the worse rule has counted %d packets", round, got.Packets)
				}
				s.counts(t, better)
				s.exchange(t, both, nil)
				if got := readOne(t, s.dp, worse); got != (Pair{}) {
					t.Fatalf("round %d: after both went, the worse rule has counted %d packets", round, got.Packets)
				}
			}
		})
	}
}

// Rules get other ranks while others are added or removed. A rule that wins neither before nor after must not count a packet.
func TestMovedRulesKeepToTheOrder(t *testing.T) {
	const more = 200
	type rules = func(s stages, counter uint32, priority uint16, more int) []Rule
	for _, tt := range []struct {
		name                   string
		first, never           rules
		firstMoves, neverMoves bool
	}{
		{"the winner, of a mask", stages.known, stages.tree, true, false},
		{"the winner, in the trees", stages.tree, stages.known, true, false},
		{"the other, in the trees", stages.known, stages.tree, false, true},
		{"the other, of a mask", stages.tree, stages.known, false, true},
		{"both, the winner of a mask", stages.known, stages.tree, true, true},
		{"both, the winner in the trees", stages.tree, stages.known, true, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newStages(t)
			first, never := mustCounter(t, s.dp, "first"), mustCounter(t, s.dp, "never")
			above := append(tt.first(s, first, 3, more), tt.never(s, never, 4, more)...)
			var below []Rule
			if tt.firstMoves {
				below = append(below, tt.first(s, first, 12, more)...)
			}
			if tt.neverMoves {
				below = append(below, tt.never(s, never, 11, more)...)
			}
			s.exchange(t, nil, above)
			for round := range times.Brief(20, 5) {
				s.counts(t, first)
				s.exchange(t, above, below)
				if got := readOne(t, s.dp, never); got != (Pair{}) {
					t.Fatalf("round %d: on the way down the other rule has counted %d packets", round, got.Packets)
				}
				s.counts(t, s.base)
				s.exchange(t, below, above)
				if got := readOne(t, s.dp, never); got != (Pair{}) {
					t.Fatalf("round %d: on the way up the other rule has counted %d packets", round, got.Packets)
				}
			}
		})
	}
}

// A rule requires 0 in a field that no program parses yet. Packets with another value must not count.
func TestRuleOfANewFieldNeverMatchesBeforeItIsParsed(t *testing.T) {
	s := newStages(t)
	id := mustCounter(t, s.dp, "zero")
	r := s.tree(id, 5, 0)[0]
	r.Mask.Out.TTL = 0xff
	for round := range times.Brief(10, 3) {
		s.counts(t, s.base)
		s.exchange(t, nil, []Rule{r})
		if got := readOne(t, s.dp, id); got != (Pair{}) {
			t.Fatalf("round %d: the rule has counted %d packets", round, got.Packets)
		}
		s.exchange(t, []Rule{r}, nil)
		s.dp.mu.Lock()
		err := s.dp.reload() // with programs that do not read the field
		s.dp.mu.Unlock()
		if err != nil {
			t.Fatal(err)
		}
	}
}
