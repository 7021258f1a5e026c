package xdp

import (
	"maps"
	"slices"
	"testing"

	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/xdp"
)

// toPort returns a flow of the packets to a UDP port.
func toPort(name string, port uint16) flow.Flow {
	p := flow.Ports{Dst: flow.Port{Value: port, Mask: 0xffff}}
	return flow.Flow{Name: name, Match: flow.Match{UDP: &p}}
}

// held is a pinned counter, with the flow that it belongs to.
type held struct {
	flow  flow.Flow
	id    uint32
	order int // of the pinned rule, or -1 without one
}

// startWith returns the plan of a start with flows.
func startWith(t *testing.T, flows []flow.Flow, counters []held, changing bool) *start {
	t.Helper()
	rulesOf := func(f flow.Flow, counter, order uint32) []xdp.Rule {
		rules, err := compile(backend.Placed{Flow: f, Order: order}, counter, func(string) (uint16, error) { return 1, nil })
		if err != nil {
			t.Fatal(err)
		}
		return rules
	}
	p := pins{changing: changing}
	for _, c := range counters {
		p.counters = append(p.counters, xdp.CounterInfo{Counter: xdp.Counter{ID: c.id}, Owner: owner(c.flow)})
		if c.order >= 0 {
			p.rules = append(p.rules, rulesOf(c.flow, c.id, uint32(c.order))...)
		}
	}
	all := make([]wanted, len(flows))
	for i, f := range flows {
		all[i] = wanted{name: f.Name, owner: owner(f), rules: rulesOf(f, 0, 0)}
	}
	return match(all, p)
}

// A flow takes over the counter of its name and match. Without one, it takes a counter of its match whose name is not configured
// any more, and of several the one that has won. Pinned rules stay in their places where the order of the flows allows it.
func TestEachFlowTakesItsCounterOver(t *testing.T) {
	a, b, c := toPort("a", 1), toPort("b", 2), toPort("c", 3)
	late := toPort("late", 1)
	late.Priority = 1
	for name, tt := range map[string]struct {
		flows    []flow.Flow
		counters []held
		adopts   map[string]uint32
		idle     []uint32
		places   []uint32
	}{
		"none pinned":   {[]flow.Flow{a, b}, nil, nil, nil, []uint32{0, 64}},
		"as before":     {[]flow.Flow{a, b, c}, []held{{a, 1, 0}, {b, 2, 64}, {c, 3, 128}}, map[string]uint32{"a": 1, "b": 2, "c": 3}, nil, []uint32{0, 64, 128}},
		"new ones":      {[]flow.Flow{a, toPort("d", 4), b, toPort("e", 5)}, []held{{a, 1, 0}, {b, 2, 64}}, map[string]uint32{"a": 1, "b": 2}, nil, []uint32{0, 1, 64, 128}},
		"another order": {[]flow.Flow{b, a, c}, []held{{a, 1, 0}, {b, 2, 64}, {c, 3, 128}}, map[string]uint32{"a": 1, "b": 2, "c": 3}, nil, []uint32{64, 65, 128}},
		"one is gone":   {[]flow.Flow{b}, []held{{a, 1, 0}, {b, 2, 64}}, map[string]uint32{"b": 2}, []uint32{1}, []uint32{64}},
		"renamed":       {[]flow.Flow{toPort("x", 1), b}, []held{{a, 1, 0}, {b, 2, 64}}, map[string]uint32{"x": 1, "b": 2}, nil, []uint32{0, 64}},
		"a name that gets another match": {
			[]flow.Flow{toPort("a", 2), toPort("b", 1)}, []held{{a, 1, 0}, {b, 2, 64}}, map[string]uint32{"a": 2, "b": 1}, nil, []uint32{64, 65},
		},
		"one of three of a match": {
			[]flow.Flow{toPort("x", 1)}, []held{{a, 1, 128}, {toPort("y", 1), 2, 0}, {toPort("z", 1), 3, -1}}, map[string]uint32{"x": 2}, []uint32{1, 3}, []uint32{0},
		},
		"one of two of a match, by their priorities": {
			[]flow.Flow{toPort("x", 1)}, []held{{late, 1, 0}, {a, 2, 64}}, map[string]uint32{"x": 2}, []uint32{1}, []uint32{64},
		},
		"a name that is still configured": {
			[]flow.Flow{toPort("x", 1), a}, []held{{a, 1, 0}}, map[string]uint32{"a": 1}, nil, []uint32{0, 1},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := startWith(t, tt.flows, tt.counters, false)
			adopts, places := make(map[string]uint32), []uint32(nil)
			for _, f := range tt.flows {
				x := s.fate(f)
				if x.adopts {
					adopts[f.Name] = x.counter
				}
				if x.gap {
					t.Errorf("%s has a gap", f.Name)
				}
				places = append(places, x.place)
			}
			if !maps.Equal(adopts, tt.adopts) || !slices.Equal(places, tt.places) {
				t.Errorf("counters %v at places %v, want %v at %v", adopts, places, tt.adopts, tt.places)
			}
			if idle := slices.Sorted(maps.Keys(s.idle)); !slices.Equal(idle, tt.idle) {
				t.Errorf("idle counters %v, want %v", idle, tt.idle)
			}
		})
	}
}

// A flow has a gap if its counter is pinned without its rules, or if the last process died while it changed the flow's rules or
// rules that win over them. Here flow a wins over c.
func TestAnUnfinishedChangeIsAGapOfItsFlows(t *testing.T) {
	a, b, c, rival := toPort("a", 1), toPort("b", 2), toPort("c", 1), toPort("rival", 1)
	c.Interface = "eth0"
	for name, tt := range map[string]struct {
		counters []held
		changing bool
		gaps     string // the flows
	}{
		"no change":                  {[]held{{a, 1, 1}, {b, 2, 2}, {c, 3, 3}, {rival, 4, 0}}, false, ""},
		"a flow that wins is added":  {[]held{{a, 1, 1}, {b, 2, 2}, {c, 3, 3}, {rival, 4, 0}}, true, "ac"},
		"a flow that loses is added": {[]held{{a, 1, 1}, {b, 2, 2}, {c, 3, 3}, {rival, 4, 9}}, true, ""},
		"a flow that wins is gone":   {[]held{{b, 2, 2}, {c, 3, 3}}, true, "c"},
		"its rules are gone":         {[]held{{a, 1, -1}, {b, 2, 2}, {c, 3, 3}}, true, "ac"},
		"two flows change places":    {[]held{{a, 1, 3}, {b, 2, 2}, {c, 3, 1}}, true, "abc"},
		"no change, rules are gone":  {[]held{{a, 1, -1}, {b, 2, 2}, {c, 3, 3}}, false, "a"},
	} {
		t.Run(name, func(t *testing.T) {
			flows := []flow.Flow{a, b, c}
			s := startWith(t, flows, tt.counters, tt.changing)
			gaps := ""
			for _, f := range flows {
				if s.fate(f).gap {
					gaps += f.Name
				}
			}
			if gaps != tt.gaps {
				t.Errorf("flows with a gap %q, want %q", gaps, tt.gaps)
			}
		})
	}
}
