package oracle

import (
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
}

// New returns a matcher of flows, which it does not validate. Callers must not change what the flows point to.
func New(flows []flow.Flow) *Matcher {
	return &Matcher{flows: slices.Clone(flows), order: Order(flows)}
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

// Matches reports whether a match selects a packet. It ignores direction and interface, which belong to the flow.
func Matches(m flow.Match, p Packet) bool { return matches(&m, parse(p)) }

// Match returns the index, among the flows of New, of the first flow to match a packet. ok is false if none does.
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
