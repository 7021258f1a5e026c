package oracle

import (
	"slices"

	"github.com/flowtally/flowtally/dataplane/flow"
)

// Packet is a frame in one direction of one interface.
type Packet struct {
	Frame     []byte
	Layer3    bool // the frame begins with IP, and not with Ethernet
	Direction flow.Direction
	Interface string
}

// Matcher finds the flow of a packet among its flows. Any number of goroutines may use it.
type Matcher struct {
	flows []flow.Flow
	order []int // see Order
}

// New returns a matcher of flows. It does not check them. The caller changes nothing to which they refer.
func New(flows []flow.Flow) *Matcher {
	return &Matcher{flows: slices.Clone(flows), order: Order(flows)}
}

// Order returns the places of flows in the order in which they win: by priority, then by place.
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

// Matches reports whether a match selects a packet, in any direction of any interface.
func Matches(m flow.Match, p Packet) bool { return matches(&m, parse(p)) }

// Match returns the place in New's flows of the flow that counts a packet. ok is false if none does.
func (m *Matcher) Match(p Packet) (index int, ok bool) {
	h := parse(p)
	for _, i := range m.order {
		f := &m.flows[i]
		if f.Direction != p.Direction || f.Interface != "" && f.Interface != p.Interface {
			continue
		}
		if matches(&f.Match, h) {
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
