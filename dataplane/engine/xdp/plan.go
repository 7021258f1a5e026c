package xdp

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/xdp"
)

// Plan is the classifier that flows would get, and its estimated cost. Costs are ns per packet, above those of an empty program.
// They are means over packets that the rules match, with nodes and entries in the second level of the cache.
type Plan struct {
	Rules, Masks int
	Hashed       []Hashed // in the order of the search
	InTrees      int      // rules
	Trees        [3]int   // for frames without IP, for IPv4, for IPv6
	Words        int      // of 8 bytes: the memory of the trees
	// Walked is the mean work of a packet.
	Walked Work
	// MostLines is the greatest number of lines among the packets of the mean.
	MostLines int
	NS        float64
	// Cost is the same mean in nodes and rules, and the worst case of each kind of frame.
	Cost dataplane.Cost
	// Costs of other classifiers, to compare with. TupleNS: a search over all masks, where ranges of ports become TupleMasks
	// masks. TreesNS: all rules in trees, or 0 if they do not fit. LinearNS: one rule after the other.
	TupleMasks                 int
	TupleNS, TreesNS, LinearNS float64
}

// Hashed is a mask whose rules are in the hash table.
type Hashed struct {
	Mask  string // its fields and their bits, in hex
	Rules int
}

// Work is the mean work for a packet: lookups of hashed masks, then the trees, cuts and entries that the search visits, and the cache
// lines of maps that all of them touch. The counter of the packet and its mark are in two lines more.
type Work struct{ Masks, Trees, Cuts, Entries, Lines float64 }

const (
	costParser  = 5   // ns: the parser and the count
	costCompare = 1.2 // ns: one rule of a linear search

	planned = 1024 // the most packets of an estimate
)

// NewPlan computes the classifier of flows in tables for maxFlows rules, without a system call. It returns an error if some packet
// could visit more than worst nodes and rules; with 0 there is no such bound.
func NewPlan(flows []flow.Flow, maxFlows, worst int) (*Plan, error) {
	port := numbered()
	var rules []xdp.Rule
	for i, f := range flows {
		compiled, err := compile(backend.Placed{Flow: f, Order: uint32(i)}, 0, port)
		if err != nil {
			return nil, fmt.Errorf("flow %q: %w", f.Name, err)
		}
		rules = append(rules, compiled...)
	}
	maxFlows = max(maxFlows, len(rules))
	m, err := xdp.NewModel(rules, maxFlows, worst, true)
	if err != nil {
		err = withFlows(err, func(r *xdp.Rule) string { return flows[r.Order].Name })
		return nil, fmt.Errorf("arranging %d flows in the tables of XDP: %w", len(flows), translate(err))
	}
	p := &Plan{Rules: len(rules), InTrees: m.InTrees, Trees: m.Trees, Words: m.Words}
	masks := map[xdp.Key]bool{}
	for i := range rules {
		masks[rules[i].Mask] = true
	}
	p.Masks = len(masks)
	m.Hashed(func(mask xdp.Key, rules int) { p.Hashed = append(p.Hashed, Hashed{maskText(&mask), rules}) })
	all := m
	if len(p.Hashed) > 0 {
		if all, err = xdp.NewModel(rules, maxFlows, 0, false); err != nil {
			all = nil // not all rules fit into trees
		}
	}
	p.estimate(m, all, rules)
	w := m.Worst()
	p.Cost.Other, p.Cost.IPv4, p.Cost.IPv6, p.Cost.NS, p.Cost.Bound = worstOf(w[0]), worstOf(w[1]), worstOf(w[2]), p.NS, worst
	return p, nil
}

func rankOf(priority uint16, order uint32) uint64 { return uint64(priority)<<32 | uint64(order) }

// estimate looks up packets of up to planned rules. all is the model with all rules in trees, or nil if they do not fit.
func (p *Plan) estimate(m, all *xdp.Model, rules []xdp.Rule) {
	n := min(planned, len(rules))
	if n == 0 {
		return
	}
	ranks := make([]uint64, len(rules))
	for i := range rules {
		ranks[i] = rankOf(rules[i].Priority, rules[i].Order)
	}
	slices.Sort(ranks)
	tuples := expanded(rules)
	p.TupleMasks = len(tuples)
	f := float64(n)
	for i := range n {
		r := &rules[i*len(rules)/n]
		priority, order, w := m.Lookup(r, rand.New(rand.NewPCG(1, uint64(i))).Uint64)
		won := rankOf(priority, order)
		p.Walked.Masks += float64(w.Masks) / f
		p.Walked.Trees += float64(w.Trees) / f
		p.Walked.Cuts += float64(w.Cuts) / f
		p.Walked.Entries += float64(w.Entries) / f
		p.Walked.Lines += float64(w.Lines) / f
		p.MostLines = max(p.MostLines, w.Lines)
		p.Cost.Nodes += float64(w.Path.Nodes) / f
		p.Cost.Rules += float64(w.Path.Entries) / f
		p.NS += (costParser + w.NS) / f
		p.TupleNS += (costParser + xdp.CostOfMasks(upTo(tuples, won))) / f
		p.LinearNS += (costParser + costCompare*float64(upTo(ranks, won))) / f
		if all != nil {
			_, _, w := all.Lookup(r, rand.New(rand.NewPCG(1, uint64(i))).Uint64)
			p.TreesNS += (costParser + w.NS) / f
		}
	}
}

// upTo returns how many of the sorted ranks are at most rank: a search stops there.
func upTo(ranks []uint64, rank uint64) int {
	n, _ := slices.BinarySearchFunc(ranks, rank, func(e, r uint64) int {
		if e <= r {
			return -1
		}
		return 1
	})
	return n
}

// expanded returns the sorted best ranks of the masks that tuple search would have, which needs prefixes instead of ranges.
func expanded(rules []xdp.Rule) (best []uint64) {
	type prefixes [4]uint8
	type masked struct {
		mask xdp.Key
		of   prefixes
	}
	masks := map[masked]uint64{}
	for i := range rules {
		r := &rules[i]
		rank := rankOf(r.Priority, r.Order)
		all := []prefixes{{}}
		for at, p := range []xdp.Range{r.Ports[0].Src, r.Ports[0].Dst, r.Ports[1].Src, r.Ports[1].Dst} {
			lengths := prefixLengths(p)
			var next []prefixes
			for _, a := range all {
				for _, l := range lengths {
					a[at] = l
					next = append(next, a)
				}
			}
			all = next
		}
		for _, of := range all {
			m := masked{r.Mask, of}
			if best, ok := masks[m]; !ok || rank < best {
				masks[m] = rank
			}
		}
	}
	for _, rank := range masks {
		best = append(best, rank)
	}
	slices.Sort(best)
	return best
}

// prefixLengths returns the lengths of the prefixes that cover a range of ports exactly.
func prefixLengths(r xdp.Range) (out []uint8) {
	if r == (xdp.Range{}) {
		return []uint8{0}
	}
	for first, end := uint32(r.First), uint32(r.Last)+1; first < end; {
		size := uint32(1)
		length := uint8(16)
		for first&(2*size-1) == 0 && first+2*size <= end {
			size, length = 2*size, length-1
		}
		if !slices.Contains(out, length) {
			out = append(out, length)
		}
		first += size
	}
	return out
}
