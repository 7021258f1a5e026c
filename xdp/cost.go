package xdp

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/flowtally/flowtally/xdp/tree"
)

// Path counts what a packet touches: nodes of the trees, cache lines of the hash table, and entries of rules. Unlike a time, it
// is the same on every host.
type Path = tree.Path

// className names a class of frames, for errors.
func className(class int) string {
	return [3]string{classOther: "neither IPv4 nor IPv6", classIPv4: "IPv4", classIPv6: "IPv6"}[class]
}

// CostError is an ErrCostly. It describes a packet that would touch more than Options.WorstCost if the new rules were added.
type CostError struct {
	Class int    // of the packet, as an index of Cost.Worst
	Worst Path   // of the packet
	Bound int    // Options.WorstCost
	Rules []Rule // compared with the packet, starting with the longest list
}

// Error implements error.
func (e *CostError) Error() string {
	return fmt.Sprintf("%v: a packet (%s) could touch %d nodes and be compared with %d rules, %d steps in all, and %d are allowed",
		ErrCostly, className(e.Class), e.Worst.Nodes, e.Worst.Entries, e.Worst.Steps(), e.Bound)
}

// Unwrap returns ErrCostly.
func (e *CostError) Unwrap() error { return ErrCostly }

// Cost is the work of classifying a packet.
type Cost struct {
	// Worst bounds the work for each class of frames: neither IPv4 nor IPv6, IPv4, IPv6.
	Worst [3]Path

	// Means over sampled packets, each of which matches a rule.
	Nodes, Entries float64
	NS             float64 // estimated nanoseconds, without the parser
}

// costProbe is the most that a packet touches under one hashed mask. A probe looks at 32 adjacent slots, which span at most five
// cache lines, and compares at most four entries. A mask with a single key needs no probe, because the key is a constant of the
// program.
var (
	costProbe  = Path{Nodes: 5, Entries: slotAttempts}
	costSingle = Path{Nodes: 1, Entries: 1}
)

// hashedCost returns the most that a packet touches in the hash table. The worst packet is looked up under every mask.
func (t *tables) hashedCost() (sum Path) {
	for _, u := range t.tuples {
		switch {
		case u == nil || u.rules == 0:
		case u.hashed:
			sum = sum.Plus(costProbe)
		default:
			sum = sum.Plus(costSingle)
		}
	}
	return sum
}

// worst returns the worst path of each class of frames.
func (t *tables) worst() [3]Path {
	worst := t.forest.set.Worst()
	for c := range worst {
		worst[c] = worst[c].Plus(t.hashedCost())
	}
	return worst
}

// costly converts a CostError of package tree, and adds the cost of the hash table.
func (t *tables) costly(err error) error {
	var e *tree.CostError
	if !errors.As(err, &e) {
		return err
	}
	out := &CostError{
		Class: e.Class,
		Worst: e.Worst.Plus(t.hashedCost()),
		Bound: t.worstCost,
	}
	for _, entry := range e.Entries {
		out.Rules = append(out.Rules, t.treeRule(unitOfTree(entry)))
	}
	return out
}

// cost samples the rules, and looks up a packet of each.
func (t *tables) cost() Cost {
	c := Cost{Worst: t.worst()}
	hashed := t.inSearch()
	rules := t.rules()
	n := min(sampledPackets, len(rules))
	for i := range n {
		key := packetFor(&rules[i*len(rules)/n], rand.New(rand.NewPCG(1, uint64(i))).Uint64)
		_, _, w := t.find(hashed, &key)
		c.Nodes += float64(w.Path.Nodes) / float64(n)
		c.Entries += float64(w.Path.Entries) / float64(n)
		c.NS += w.NS / float64(n)
	}
	return c
}

// sampledPackets bounds the sample of Cost.
const sampledPackets = 1024

// CostOfMasks estimates the time of a lookup under n hashed masks, in nanoseconds.
func CostOfMasks(n int) float64 {
	if n == 0 {
		return 0
	}
	return costFirstMask + costNextMask*float64(n-1)
}

// Work is the work of one lookup.
type Work struct {
	Masks   int // hashed masks probed
	Trees   int
	Cuts    int
	Entries int     // entries of the trees compared
	Lines   int     // cache lines of maps touched, without the counter and its mark
	Path    Path    // a hashed mask counts as one node
	NS      float64 // estimated nanoseconds
}

// find looks up a key as the programs do: first under the hashed masks, then in the trees, unless no rule there could win. It
// returns the rank of the winner. hashed must be in the order of inSearch.
func (t *tables) find(hashed []*tuple, key *Key) (priority uint16, order uint32, w Work) {
	won := noRank
	touched := lines{}
	inTrees := t.forest.best < noRank

	// beaten reports whether nothing from a place on can win, as the word of this place in the ranks says.
	beaten := func(place int) bool {
		touched.word(ofRanks, place)
		best := t.forest.best
		if place < len(hashed) {
			best = min(best, hashed[place].best)
		}
		return best >= won
	}

	place := 0
	for ; place < len(hashed) && (place == 0 || !beaten(place)); place++ {
		u := hashed[place]
		w.Masks++
		w.Path.Nodes++
		packed := u.pack(nil, key.words())
		touched.tuple(t, u, place, packed)
		if c := u.chains[string(bytesOf(packed))]; c != nil {
			w.Path.Entries++
			won = min(won, t.entries.rank(c.entries[0]))
			// If there is only one mask, programs need no rank.
			if place > 0 || len(hashed) > 1 || inTrees {
				touched.rank(t, c.entries[0])
			}
		}
	}

	// Among the first two masks the search ends at once. Behind them, the program loads one more rank before it ends.
	var walk tree.Walk
	ended := place < len(hashed) && place <= nearTuples
	if inTrees && !ended && (len(hashed) == 0 || !beaten(len(hashed))) {
		if e := touched.walk(t, &walk, key.words(), won); e != 0 {
			won = min(won, t.entries.rank(unitOfTree(e)))
		}
	}
	w.Trees = walk.Groups
	w.Cuts = walk.Cuts
	w.Entries = walk.Entries
	w.Lines = len(touched)
	w.NS = CostOfMasks(w.Masks) + walk.NS()
	w.Path = w.Path.Plus(walk.Path())
	return uint16(won >> 32), uint32(won), w
}

// inSearch returns the hashed masks in the order in which programs search them.
func (t *tables) inSearch() (hashed []*tuple) {
	for _, u := range t.tuples {
		if u != nil && u.rules > 0 {
			hashed = append(hashed, u)
		}
	}
	slices.SortFunc(hashed, func(a, b *tuple) int { return cmp.Compare(a.best, b.best) })
	return hashed
}
