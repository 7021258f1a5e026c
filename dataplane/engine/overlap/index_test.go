package overlap

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/oracle/gen"
)

// candidates calls visit with the values that Overlapping compares with f.
func candidates(x *Index[*flow.Flow], f *flow.Flow, visit func(*flow.Flow)) {
	x.candidates(&x.root, 0, f, visit)
}

func newIndex() *Index[*flow.Flow] {
	return NewIndex(func(f *flow.Flow) *flow.Flow { return f })
}

// The index finds every value whose flow overlaps a given one. It compares no value twice, and not all of them.
func TestIndexFindsEveryOverlap(t *testing.T) {
	apart := 0
	rapid.Check(t, func(t *rapid.T) {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "flows"), rapid.Uint64().Draw(t, "more")))
		flows := gen.Flows(rng, 150+rng.IntN(100))
		x := newIndex()
		var all []*flow.Flow
		for i := range flows {
			flows[i].Interface = []string{"", "", "eth0", "eth1"}[rng.IntN(4)]
			x.Add(&flows[i])
			all = append(all, &flows[i])
		}
		gone := make(map[*flow.Flow]bool)
		for _, f := range all {
			if rng.IntN(4) == 0 {
				gone[f] = true
				x.Remove(f)
			}
		}
		all = slices.DeleteFunc(all, func(f *flow.Flow) bool { return gone[f] })
		for _, f := range all {
			compared, found := make(map[*flow.Flow]bool), make(map[*flow.Flow]bool)
			candidates(x, f, func(o *flow.Flow) {
				if compared[o] || gone[o] {
					t.Fatalf("%q: %q is compared twice, or was removed", f.Match, o.Match)
				}
				compared[o] = true
			})
			x.Overlapping(f, func(o *flow.Flow) { found[o] = true })
			for _, o := range all {
				if flow.Overlap(f, o) != found[o] {
					t.Fatalf("%q and %q: found %t, overlap %t", f.Match, o.Match, found[o], !found[o])
				}
			}
			apart += len(all) - len(compared)
		}
		n := 0
		x.All(func(o *flow.Flow) { n++ })
		if x.Len() != len(all) || n != len(all) {
			t.Fatalf("the index has %d flows and visits %d, want %d", x.Len(), n, len(all))
		}
	})
	if apart == 0 {
		t.Error("every two are compared")
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
			looks := 0
			x := newIndex()
			for i := range n {
				parsed := flow.MustParse("f", text(i))
				f := &parsed
				candidates(x, f, func(*flow.Flow) { looks++ })
				x.Add(f)
			}
			if most := n * maxUndivided; looks > most {
				t.Errorf("%d pairs were looked at, want %d at most", looks, most)
			}
		})
	}
}
