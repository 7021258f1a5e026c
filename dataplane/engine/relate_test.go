package engine

import (
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/engine/overlap"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/oracle/gen"
)

// stackOf makes flows of a stack, in their order.
func stackOf(flows []flow.Flow) []*flowState {
	out := make([]*flowState, len(flows))
	for i, f := range flows {
		out[i] = &flowState{shown: &shown{Placed: backend.Placed{Flow: f, Order: uint32(i)}}, offload: &offload{}}
	}
	return out
}

func relatedStack() *stack {
	return &stack{related: overlap.NewIndex(func(c *flowState) *flow.Flow { return &c.Flow })}
}

// The index relates each flow to exactly the flows that overlap it.
func TestFlowsAreRelatedAsIfEveryTwoWereLookedAt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "flows"), rapid.Uint64().Draw(t, "more")))
		flows := gen.Flows(rng, 150+rng.IntN(100))
		for i := range flows {
			flows[i].Interface = []string{"", "", "eth0", "eth1"}[rng.IntN(4)]
		}
		all := stackOf(flows)
		n := rng.IntN(len(all))
		st := relatedStack()
		st.relate(all[:n])
		st.relate(all[n:])
		gone := make(map[*flowState]bool)
		for _, c := range all {
			gone[c] = rng.IntN(4) == 0
		}
		st.unrelate(slices.DeleteFunc(slices.Clone(all), func(c *flowState) bool { return !gone[c] }))
		all = slices.DeleteFunc(all, func(c *flowState) bool { return gone[c] })
		for _, c := range all {
			if !slices.IsSortedFunc(c.winners(), byPrecedence) || len(c.above) > len(all) {
				t.Fatalf("%q: those that win over it are not in order", c.Match)
			}
		}
		if st.related.Len() != len(all) {
			t.Fatalf("the index has %d flows, want %d", st.related.Len(), len(all))
		}
		for i, a := range all {
			for _, b := range all[:i] {
				want := flow.Overlap(&a.Flow, &b.Flow)
				above, below := slices.Contains(a.above, b), slices.Contains(b.above, a)
				if slices.Contains(b.below, a) != above || slices.Contains(a.below, b) != below {
					t.Fatalf("%q and %q: one does not know of the other", a.Match, b.Match)
				}
				if above && below || (above || below) != want || want && above != (byPrecedence(b, a) < 0) {
					t.Fatalf("%q and %q: above %t, below %t, overlap %t", a.Match, b.Match, above, below, want)
				}
			}
		}
	})
}
