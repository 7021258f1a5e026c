package overlap

import (
	"math"

	"github.com/flowtally/flowtally/dataplane/flow"
)

// Ranked is the order of a flow among flows of its priority.
type Ranked struct {
	Order  uint32 // lower wins
	Behind string // the name of a flow that made this one get another order, or empty
}

// Rank returns orders by which, of flows of equal priority that overlap, the first in flows wins. orders are the
// present orders; -1: the flow is new, and gets one from next on. A flow keeps its order, unless a flow before it would
// lose against it: then it gets an order behind all.
func Rank(flows []*flow.Flow, orders []int64, next uint32) []Ranked {
	type place struct {
		*flow.Flow
		order int64
	}
	least := leastFrom(orders)
	before := NewIndex(func(p *place) *flow.Flow { return p.Flow }) // the flows that a later one may win over
	out := make([]Ranked, len(flows))
	for i, f := range flows {
		order := orders[i]
		before.Overlapping(f, func(p *place) {
			wins := order >= 0 && p.Priority == f.Priority && p.order > order
			if wins && (out[i].Behind == "" || p.Name < out[i].Behind) {
				out[i].Behind = p.Name
			}
		})
		if order < 0 || out[i].Behind != "" {
			order = int64(next)
			next++
		}
		out[i].Order = uint32(order)

		if order > least[i+1] {
			before.Add(&place{f, order})
		}
	}
	return out
}

// leastFrom returns, for each i up to len(orders), the lowest present order of orders[i:].
func leastFrom(orders []int64) []int64 {
	least := make([]int64, len(orders)+1)
	least[len(orders)] = math.MaxInt64
	for i := len(orders) - 1; i >= 0; i-- {
		least[i] = least[i+1]
		if orders[i] >= 0 {
			least[i] = min(least[i], orders[i])
		}
	}
	return least
}
