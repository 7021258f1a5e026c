package engine

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/linear/gen"
)

// stackOf makes flows of a stack, in their order.
func stackOf(flows []flow.Flow) []*counted {
	out := make([]*counted, len(flows))
	for i, f := range flows {
		out[i] = &counted{Placed: Placed{Flow: f, Order: uint32(i)}, layered: &layered{}}
	}
	return out
}

func relatedStack() *stack {
	return &stack{related: index[*counted]{flowOf: func(c *counted) *flow.Flow { return &c.Flow }}}
}

// Whatever is told apart without being looked at does not overlap, and no pair is looked at twice.
func TestFlowsAreRelatedAsIfEveryTwoWereLookedAt(t *testing.T) {
	apart := 0
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
		gone := make(map[*counted]bool)
		for _, c := range all {
			gone[c] = rng.IntN(4) == 0
		}
		st.unrelate(slices.DeleteFunc(slices.Clone(all), func(c *counted) bool { return !gone[c] }))
		all = slices.DeleteFunc(all, func(c *counted) bool { return gone[c] })
		for _, c := range all {
			seen := make(map[*counted]bool)
			st.related.visit(&st.related.root, 0, &c.Flow, func(o *counted) {
				if seen[o] || gone[o] {
					t.Fatalf("%q: %q is looked at twice, or has gone", c.Match, o.Match)
				}
				seen[o] = true
			})
			apart += len(all) - len(seen)
			if !slices.IsSortedFunc(c.winners(), byPrecedence) || len(c.above) > len(all) {
				t.Fatalf("%q: those that win over it are not in order", c.Match)
			}
		}
		if st.related.size() != len(all) {
			t.Fatalf("the index has %d flows, want %d", st.related.size(), len(all))
		}
		for i, a := range all {
			for _, b := range all[:i] {
				want := overlap(&a.Flow, &b.Flow)
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
	if apart == 0 {
		t.Error("every two are looked at")
	}
}

// A table of connections, or of services, is related in about as many steps as it has flows.
func TestLargeSetsAreNotLookedAtPairByPair(t *testing.T) {
	const n = 4096
	for what, text := range map[string]func(i int) string{
		"ports":   func(i int) string { return fmt.Sprintf("ipv4 udp dport %d", i+1) },
		"hosts":   func(i int) string { return fmt.Sprintf("ipv4 dst 10.0.%d.%d", i>>8, i&255) },
		"clients": func(i int) string { return fmt.Sprintf("ipv6 src 2001:db8::%x tcp dport 443", i+1) },
		"connections": func(i int) string {
			return fmt.Sprintf("ipv4 src 10.0.0.%d dst 10.1.0.%d tcp sport %d dport 80", i&15, i>>4&15, 1024+i>>8)
		},
	} {
		t.Run(what, func(t *testing.T) {
			flows := make([]flow.Flow, n)
			for i := range flows {
				flows[i] = udpFlow(t, fmt.Sprint(i), text(i), 0)
			}
			looks := 0
			st := relatedStack()
			for _, c := range stackOf(flows) {
				st.related.visit(&st.related.root, 0, &c.Flow, func(*counted) { looks++ })
				st.related.add(c)
			}
			if most := n * few; looks > most {
				t.Errorf("%d pairs were looked at, want %d at most", looks, most)
			}
		})
	}
}
