package overlap

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/oracle/gen"
)

func newIndex() *Index[*flow.Flow] {
	return NewIndex(func(f *flow.Flow) *flow.Flow { return f })
}

// The index finds every value whose flow overlaps a given one, while flows come and go. It compares no value twice, and not all
// of them.
func TestIndexFindsEveryOverlap(t *testing.T) {
	for name, draw := range map[string]func(*rand.Rand) []flow.Flow{
		"any fields": func(rng *rand.Rand) []flow.Flow { return gen.Flows(rng, 150+rng.IntN(100)) },
		"few values": func(rng *rand.Rand) []flow.Flow { return drawNarrow(rng, 50+rng.IntN(40)) },
	} {
		t.Run(name, func(t *testing.T) {
			apart := 0
			rapid.Check(t, func(t *rapid.T) {
				rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "flows"), rapid.Uint64().Draw(t, "more")))
				flows := draw(rng)
				x := newIndex()
				var there []*flow.Flow
				for i := range flows {
					f := &flows[i]
					f.Interface = []string{"", "", "eth0", "eth1"}[rng.IntN(4)]
					if i%8 == 0 {
						apart += checkSearch(t, x, f, there)
					}
					x.Add(f)
					there = append(there, f)
					if rng.IntN(4) == 0 {
						at := rng.IntN(len(there))
						x.Remove(there[at])
						x.Remove(there[at]) // it is gone already
						there = slices.Delete(there, at, at+1)
					}
				}
				for _, f := range there {
					apart += checkSearch(t, x, f, there)
				}
				for _, f := range there {
					x.Remove(f)
				}
				if x.Len() != 0 || x.root != nil {
					t.Fatalf("%d flows are left, root %v", x.Len(), x.root)
				}
			})
			if apart == 0 {
				t.Error("every two are compared")
			}
		})
	}
}

// checkSearch compares a search with a look at all flows of the index. It returns how many flows the search did not compare.
func checkSearch(t *rapid.T, x *Index[*flow.Flow], f *flow.Flow, there []*flow.Flow) (apart int) {
	compared, found := make(map[*flow.Flow]bool), make(map[*flow.Flow]bool)
	x.candidates(f, func(o *flow.Flow) {
		if compared[o] || !slices.Contains(there, o) {
			t.Fatalf("%q: %q is compared twice, or was removed", f.Match, o.Match)
		}
		compared[o] = true
	})
	x.Overlapping(f, func(o *flow.Flow) { found[o] = true })
	for _, o := range there {
		if flow.Overlap(f, o) != found[o] {
			t.Fatalf("%q and %q: found %t, overlap %t", f.Match, o.Match, found[o], !found[o])
		}
	}
	n := 0
	x.All(func(*flow.Flow) { n++ })
	if x.Len() != len(there) || n != len(there) {
		t.Fatalf("the index has %d flows and visits %d, want %d", x.Len(), n, len(there))
	}
	return len(there) - len(compared)
}

// drawNarrow draws flows of few fields and few values, so that nodes divide prefixes, ranges, masks and sets of one field.
func drawNarrow(rng *rand.Rand, n int) []flow.Flow {
	address := func() string {
		a := rng.IntN(256)
		switch rng.IntN(4) {
		case 0:
			free := rng.IntN(8)
			return fmt.Sprintf("10.0.0.%d/%d", a>>free<<free, 32-free)
		case 1:
			return fmt.Sprintf("10.0.0.%d-10.0.0.%d", a, a+rng.IntN(256-a))
		case 2:
			mask := 1 + rng.IntN(255)
			return fmt.Sprintf("10.0.0.%d/255.255.255.%d", a&mask, mask)
		}
		return fmt.Sprintf("10.0.0.%d", a)
	}
	port := func() string {
		p := rng.IntN(32)
		if rng.IntN(2) == 0 {
			return fmt.Sprintf("%d-%d", p, p+rng.IntN(8))
		}
		return fmt.Sprint(p)
	}
	set := func(draw func() string) string {
		var values []string
		for range 1 + rng.IntN(1+rng.IntN(6)) {
			values = append(values, draw())
		}
		not := ""
		if rng.IntN(8) == 0 {
			not = "!= "
		}
		return not + "{" + strings.Join(values, ", ") + "}"
	}
	var flows []flow.Flow
	for len(flows) < n {
		text := "ipv4"
		if rng.IntN(4) > 0 {
			text += " src " + set(address)
		}
		if rng.IntN(4) > 0 {
			text += " dst " + set(address)
		}
		if rng.IntN(2) > 0 {
			text += []string{" tcp", " udp"}[rng.IntN(2)] + " dport " + set(port)
		}
		if m, err := flow.ParseMatch(text); err == nil { // a set may exclude all
			flows = append(flows, flow.Flow{Name: "f", Match: m})
		}
	}
	return flows
}

// scattered returns an address for each n. Those of any two n differ.
func scattered(n int) string {
	a := uint32(n) * 2654435761
	return fmt.Sprintf("%d.%d.%d.%d", a>>24, a>>16&255, a>>8&255, a&255)
}

// A search in a set of thousands compares few boxes, whatever the flows ask for and in whatever order they came. Few flows reach
// flow.Overlap that do not overlap.
func TestLargeSetsAreNotLookedAtPairByPair(t *testing.T) {
	n := 16384
	if testing.Short() {
		n = 2048
	}
	var many []string // sets of 64 values each, one between another
	for i := range 256 {
		var values []string
		for k := range 64 {
			values = append(values, fmt.Sprint(i+256*k))
		}
		many = append(many, "udp dport {"+strings.Join(values, ", ")+"}")
	}
	for _, c := range []struct {
		what string
		n    int
		most int // comparisons of a search, on average
		text func(i int) string
	}{
		{"ports", n, 60, func(i int) string { return fmt.Sprintf("ipv4 udp dport %d", i+1) }},
		{"hosts", n, 60, func(i int) string { return fmt.Sprintf("ipv4 dst 10.0.%d.%d", i>>8, i&255) }},
		{"hosts of one network, and a few far away", n, 60, func(i int) string {
			if i%32 == 0 {
				return "ipv4 dst " + scattered(i)
			}
			return fmt.Sprintf("ipv4 dst 10.0.%d.%d", i>>8, i&255)
		}},
		{"clients", n, 60, func(i int) string { return fmt.Sprintf("ipv6 src 2001:db8::%x tcp dport 443", i+1) }},
		{"connections", n, 60, func(i int) string {
			return fmt.Sprintf("ipv4 src 10.0.0.%d dst 10.1.0.%d tcp sport %d dport 80", i&15, i>>4&15, 1024+i>>8)
		}},
		{"links", n, 60, func(i int) string { return fmt.Sprintf("eth dst 02:00:00:00:%02x:%02x", i>>8, i&255) }},
		{"tunnels", n, 60, func(i int) string { return fmt.Sprintf("gtpu teid %d inner ipv4 src 10.0.0.1", i) }},
		{"hosts in tunnels", n, 60, func(i int) string { return fmt.Sprintf("vxlan vni 5 inner ipv4 dst %s", scattered(i)) }},
		{"prefixes", n, 60, func(i int) string { return fmt.Sprintf("ipv4 dst 10.%d.%d.0/24", i>>8, i&255) }},
		{"prefixes of all lengths", n, 400, func(i int) string { return prefix(8+i%25, i) }},
		{"hosts, then prefixes", n, 100, func(i int) string {
			if i < n/2 {
				return fmt.Sprintf("ipv4 dst 10.%d.%d.1", i>>8, i&255)
			}
			i -= n / 2
			return fmt.Sprintf("ipv4 dst 10.%d.%d.128/25", i>>8, i&255)
		}},
		{"port ranges", n, 60, func(i int) string { return fmt.Sprintf("udp dport %d-%d", 4*i, 4*i+3) }},
		{"port ranges of hosts", n, 60, func(i int) string { return fmt.Sprintf("ipv4 dst %s udp dport 1000-%d", scattered(i), 40000+i) }},
		{"address ranges", n, 60, func(i int) string {
			return fmt.Sprintf("ipv4 src 10.%d.%d.5-10.%[1]d.%[2]d.77", i>>8, i&255)
		}},
		{"sets of addresses", n, 300, func(i int) string {
			return fmt.Sprintf("ipv4 src {%s, %s, %s, %s}", scattered(4*i), scattered(4*i+1), scattered(4*i+2), scattered(4*i+3))
		}},
		{"sets of addresses and of ports", n / 4, 1000, func(i int) string {
			return fmt.Sprintf("ipv4 dst {%s, %s} tcp dport {22, 80, 443, 8080, 8443}", scattered(2*i), scattered(2*i+1))
		}},
		{"sets of IPv6 addresses", n, 150, func(i int) string {
			a := uint32(i) * 2654435761
			return fmt.Sprintf("ipv6 dst {2001:db8::%x, 2001:db8:0:1::%x:%x}", i, a>>16, a&0xffff)
		}},
		{"sets of many ports", len(many), 64 * 60, func(i int) string { return many[i] }},
		{"negations", n, 100, func(i int) string { return fmt.Sprintf("ipv4 src != 10.0.0.0/8 dst %s", scattered(i)) }},
		{"masks of low bits", n, 60, func(i int) string { return fmt.Sprintf("ipv4 dst 0.0.%d.%d/0.0.255.255", i>>8, i&255) }},
		{"hosts beside ports", n, 60, func(i int) string {
			if i%2 == 0 {
				return "ipv4 src 10.0.0.1 dst " + scattered(i)
			}
			return fmt.Sprintf("ipv4 src 10.0.0.2 udp dport %d", i)
		}},
		{"fragments beside ports", n, 60, func(i int) string {
			if i%2 == 0 {
				return "ipv4 frag later dst " + scattered(i)
			}
			return fmt.Sprintf("tcp dport %d", i)
		}},
		{"protocols beside ports", n, 60, func(i int) string {
			switch i % 4 {
			case 0:
				return "ipv4 proto 6 dst " + scattered(i)
			case 1:
				return fmt.Sprintf("udp dport %d", i)
			case 2:
				return fmt.Sprintf("ipv6 nexthdr 6 dst 2001:db8::%x", i)
			}
			return fmt.Sprintf("eth type 0x0806 src 02:00:00:00:%02x:%02x", i>>8, i&255)
		}},
	} {
		t.Run(c.what, func(t *testing.T) {
			flows := make([]flow.Flow, c.n)
			for i := range flows {
				flows[i] = flow.MustParse("f", c.text(i))
			}
			for _, order := range []string{"as written", "in another order"} {
				x := newIndex()
				candidates, overlaps := 0, 0
				for i := range flows {
					f := &flows[i]
					x.candidates(f, func(o *flow.Flow) {
						candidates++
						if flow.Overlap(f, o) {
							overlaps++
						}
					})
					x.Add(f)
				}
				t.Logf("%s: %d comparisons of boxes, %d of flows, %d overlaps", order, x.compared, candidates, overlaps)
				if x.compared > c.n*c.most {
					t.Errorf("%s: %d boxes were compared, want %d for each of %d flows at most", order, x.compared, c.most, c.n)
				}
				if candidates > overlaps+c.n/100 {
					t.Errorf("%s: %d pairs reached flow.Overlap, of which %d overlap", order, candidates, overlaps)
				}
				rand.New(rand.NewPCG(1, 1)).Shuffle(len(flows), func(i, j int) { flows[i], flows[j] = flows[j], flows[i] })
			}
		})
	}
}

// prefix returns a match on a prefix of some length.
func prefix(length, i int) string {
	m := flow.MustParse("f", fmt.Sprintf("ipv4 dst %s", scattered(i))).Match
	for bit := length; bit < 32; bit++ {
		m.IPv4.Dst.Addr[bit/8] &^= 0x80 >> (bit % 8)
		m.IPv4.Dst.Mask[bit/8] &^= 0x80 >> (bit % 8)
	}
	return m.String()
}

// Masks of unlike bits can be told apart by no division. Then pairs of boxes are compared, and hardly any pairs of flows.
func TestMasksOfUnlikeBitsDoNotReachOverlap(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	flows := make([]flow.Flow, 2048)
	for i := range flows {
		ip := new(flow.IPv4)
		for b := range 4 {
			ip.Src.Mask[b], ip.Dst.Mask[b] = byte(rng.Uint32()), byte(rng.Uint32())
			ip.Src.Addr[b], ip.Dst.Addr[b] = byte(rng.Uint32())&ip.Src.Mask[b], byte(rng.Uint32())&ip.Dst.Mask[b]
		}
		flows[i] = flow.Flow{Name: "f", Match: flow.Match{IPv4: ip}}
	}
	x := newIndex()
	candidates, overlaps := 0, 0
	for i := range flows {
		f := &flows[i]
		x.candidates(f, func(o *flow.Flow) {
			candidates++
			if flow.Overlap(f, o) {
				overlaps++
			}
		})
		x.Add(f)
	}
	t.Logf("%d comparisons of boxes, %d of flows, %d overlaps", x.compared, candidates, overlaps)
	if candidates > overlaps {
		t.Errorf("%d pairs reached flow.Overlap, of which %d overlap", candidates, overlaps)
	}
}

// Flows that all overlap are found in about as many steps as there are pairs, and go again.
func TestFlowsThatAllOverlapAreComparedOnce(t *testing.T) {
	const n = 1024
	flows := make([]flow.Flow, n)
	x := newIndex()
	found := 0
	for i := range flows {
		flows[i] = flow.MustParse("f", fmt.Sprintf("udp dport %d-%d", i, 65535-i))
		x.Overlapping(&flows[i], func(*flow.Flow) { found++ })
		x.Add(&flows[i])
	}
	if want := n * (n - 1) / 2; found != want || x.compared > want*5/4 {
		t.Errorf("found %d in %d comparisons, want %d", found, x.compared, want)
	}
	for i := range flows {
		x.Remove(&flows[i])
	}
	if x.Len() != 0 || x.root != nil {
		t.Errorf("%d flows are left", x.Len())
	}
}

// A flow of several large sets does not take a box for each of thousands of combinations.
func TestCombinationsOfSetsAreBounded(t *testing.T) {
	set := func(n, step int) string {
		var values []string
		for i := range n {
			values = append(values, fmt.Sprint(i*step))
		}
		return "{" + strings.Join(values, ", ") + "}"
	}
	for _, c := range []struct {
		text string
		want int
	}{
		{"tcp dport 80", 1},
		{"tcp dport {80, 443}", 2},
		{"tcp sport " + set(16, 2) + " dport " + set(16, 100), 256},
		{"tcp sport " + set(64, 2) + " dport " + set(64, 100), 64}, // those of dport
		{"tcp dport " + set(4000, 2), 4000},
		{"tcp sport != 5 dport " + set(200, 100), 200},
	} {
		f := flow.MustParse("f", c.text)
		it := newItem(&f, &f)
		if it.choices != c.want {
			t.Errorf("%.60s: %d boxes, want %d", c.text, it.choices, c.want)
		}
	}
	wide := flow.MustParse("f", "tcp sport "+set(64, 2)+" dport "+set(64, 100))
	if it := newItem(&wide, &wide); it.sets[0][1].First != (flow.Number{Lo: 100}) {
		t.Errorf("the set whose values are chosen has %v", it.sets[0])
	}
}
