package linear

import (
	"slices"

	"github.com/flowtally/flowtally/dataplane/flow"
)

// Packet is one frame, from its Ethernet header on, as one side of one
// interface sees it; from its IP header on with Layer3.
type Packet struct {
	Layer3    bool
	Frame     []byte
	Direction flow.Direction
	Interface string
}

// Matcher holds flows in the order in which they win. It is immutable: any
// number of goroutines may use it.
type Matcher struct {
	flows []flow.Flow
	order []int
}

// New orders flows by priority, then by their place in flows. It neither
// checks nor copies them deeply.
func New(flows []flow.Flow) *Matcher {
	return &Matcher{flows: slices.Clone(flows), order: Order(flows)}
}

// Order returns the places of flows in the order in which they win.
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

// Matches says whether a match selects a packet, on any side of any interface.
func Matches(m flow.Match, p Packet) bool { return matches(&m, parse(p)) }

// Match returns the place, in the flows given to New, of the one flow that
// counts the packet; ok is false when none does.
func (m *Matcher) Match(p Packet) (index int, ok bool) {
	return m.match(p, parse(p))
}

func parse(p Packet) *headers {
	if p.Layer3 {
		return parseIP(p.Frame, true)
	}
	return parseFrame(p.Frame, true)
}

func (m *Matcher) match(p Packet, h *headers) (index int, ok bool) {
	for _, i := range m.order {
		f := &m.flows[i]
		if f.Direction == p.Direction &&
			(f.Interface == "" || f.Interface == p.Interface) &&
			matches(&f.Match, h) {
			return i, true
		}
	}
	return 0, false
}
