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
		there, fresh := all[:n], all[n:]
		relate(nil, there)
		relate(there, fresh)
		seen := make(map[[2]*counted]bool)
		look := func(a, b *counted) {
			if seen[[2]*counted{a, b}] || seen[[2]*counted{b, a}] {
				t.Fatalf("%q and %q are looked at twice", a.Match, b.Match)
			}
			seen[[2]*counted{a, b}] = true
		}
		meetings{look}.between(fresh, there, keys)
		meetings{look}.among(fresh, keys)
		apart += len(fresh)*len(there) + len(fresh)*(len(fresh)-1)/2 - len(seen)
		for i, a := range all {
			for _, b := range all[:i] {
				want := overlap(&a.Flow, &b.Flow)
				above, below := slices.Contains(a.above, b), slices.Contains(b.above, a)
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
			meetings{func(a, b *counted) { looks++ }}.among(stackOf(flows), keys)
			if most := n * few; looks > most {
				t.Errorf("%d pairs were looked at, want %d at most", looks, most)
			}
			looks = 0
			all := stackOf(flows)
			meetings{func(a, b *counted) { looks++ }}.between(all[:n/2], all[n/2:], keys)
			if most := n * few; looks > most {
				t.Errorf("between two halves %d pairs were looked at, want %d at most", looks, most)
			}
		})
	}
}
