package oracle

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/flowtally/flowtally/dataplane/flow"
)

// Packet is a frame, received or sent by an interface.
type Packet struct {
	Frame     []byte
	Layer3    bool // the frame begins with IP, and not with Ethernet
	Direction flow.Direction
	Interface string
}

// Matcher finds the flow of a packet. Any number of goroutines may use it at the same time.
type Matcher struct {
	flows []flow.Flow
	order []int // see Order
	sets  sets
}

// New returns a matcher of flows, which it does not validate. Callers must not change what the flows point to. New panics if a flow
// names a set: see NewWithSets.
func New(flows []flow.Flow) *Matcher {
	m, err := NewWithSets(flows, nil)
	if err != nil {
		panic("oracle: " + err.Error())
	}
	return m
}

// NewWithSets is like New for flows that name sets. elements has the elements of each set. It returns an error if a set is missing,
// or an element has bits behind its length.
func NewWithSets(flows []flow.Flow, elements map[string][]netip.Prefix) (*Matcher, error) {
	m := &Matcher{flows: slices.Clone(flows), order: Order(flows), sets: make(sets)}
	for _, f := range flows {
		for field, c := range f.Match.NamedSets() {
			list, ok := elements[c.Set]
			if !ok {
				return nil, fmt.Errorf("flow %q: %s: the elements of the set @%s are missing", f.Name, field, c.Set)
			}
			if m.sets[c.Set] != nil {
				continue
			}
			s, err := newSet(list)
			if err != nil {
				return nil, fmt.Errorf("set %q: %w", c.Set, err)
			}
			m.sets[c.Set] = s
		}
	}
	return m, nil
}

// Order returns the indexes of flows in the order in which they win: by priority, then by index.
func Order(flows []flow.Flow) []int {
	order := make([]int, len(flows))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return int(flows[a].Priority) - int(flows[b].Priority)
	})
	return order
}

// Matches reports whether a match selects a packet. It ignores direction and interface, which belong to the flow. It panics if the
// match names a set.
func Matches(m flow.Match, p Packet) bool { return matches(&m, parse(p), nil) }

// Match returns the index, among the flows of New, of the first flow to match a packet. ok is false if none does.
func (m *Matcher) Match(p Packet) (index int, ok bool) {
	h := parse(p)
	for _, i := range m.order {
		f := &m.flows[i]
		if f.Direction != p.Direction || f.Interface != "" && f.Interface != p.Interface {
			continue
		}
		if matches(&f.Match, h, m.sets) {
			return i, true
		}
	}
	return 0, false
}

func parse(p Packet) *headers {
	if p.Layer3 {
		return parseIP(p.Frame, true)
	}
	return parseFrame(p.Frame, true)
}
