package xdp

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/flowtally/flowtally/xdp/tree"
)

// Path is what one packet touches: nodes of the trees and lines of the hash table, and entries of rules that it is
// compared with. It is a count, the same on every host.
type Path = tree.Path

// className is the name of a class of frames, by its number in Cost.Worst and CostError.Class.
func className(class int) string {
	return [3]string{classOther: "neither IPv4 nor IPv6", classIPv4: "IPv4", classIPv6: "IPv6"}[class]
}

// CostError is an ErrCostly. It is returned when some packet could touch more than Options.WorstCost.
type CostError struct {
	Class int // of the frames
	Worst Path
	Bound int
	Rules []Rule // with which the packet is compared, those of the longest list first
}

// Error implements error.
func (e *CostError) Error() string {
	return fmt.Sprintf("%v: a packet (%s) could touch %d nodes and be compared with %d rules, %d steps in all, and %d are allowed",
		ErrCostly, className(e.Class), e.Worst.Nodes, e.Worst.Entries, e.Worst.Steps(), e.Bound)
}

// Unwrap returns ErrCostly.
func (e *CostError) Unwrap() error { return ErrCostly }

// Cost is what packets touch in the classifier.
type Cost struct {
	// Worst is a path for each class of frames. No packet of the class touches more.
	Worst [3]Path
	// Nodes, Entries and NS are means over packets that the rules match. NS is an estimate in nanoseconds, without the parser.
	Nodes, Entries, NS float64
}

// hashedCost is the most that a packet touches under the hashed masks: it may have to look under each of them.
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

// costly makes an error of package tree one of this package, which counts hashed masks too.
func (t *tables) costly(err error) error {
	var e *tree.CostError
	if !errors.As(err, &e) {
		return err
	}
	out := &CostError{Class: e.Class, Worst: e.Worst.Plus(t.hashedCost()), Bound: t.worstCost}
	for _, entry := range e.Entries {
		unit := unitOfTree(entry)
		var r Rule
		t.entries.readTree(unit, &r)
		d := t.entries.dirWord(unit)
		r.Counter, r.Drop = d.counter(), d.drop()
		r.Priority, r.Order = uint16(t.entries.rank(unit)>>32), uint32(t.entries.rank(unit))
		out.Rules = append(out.Rules, r)
	}
	return out
}

// cost looks up packets of some of the rules.
func (t *tables) cost() Cost {
	c := Cost{Worst: t.worst()}
	hashed, rules := t.inSearch(), t.rules()
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

// sampledPackets is the number of packets of which Cost has the mean.
const sampledPackets = 1024

// CostOfMasks is the estimated time in ns of a search of n hashed masks.
func CostOfMasks(n int) float64 {
	if n == 0 {
		return 0
	}
	return costFirstMask + costNextMask*float64(n-1)
}

// Work is the work of a lookup, and its estimated time in ns.
type Work struct {
	Masks, Trees, Cuts, Entries int
	Path                        Path // a hashed mask counts as one node
	NS                          float64
}

// find looks a key up in the hashed masks, which are in the order of the search, and in the trees.
func (t *tables) find(hashed []*tuple, key *Key) (priority uint16, order uint32, w Work) {
	won := noRank
	for _, u := range hashed {
		if u.best > won {
			break
		}
		w.Masks++
		w.Path.Nodes++
		if c := u.chains[string(bytesOf(u.pack(nil, key.words())))]; c != nil {
			w.Path.Entries++
			won = min(won, t.entries.rank(c.entries[0]))
		}
	}
	var walk tree.Walk
	if k := tree.Key(*key.words()); t.forest.best < won {
		if e := t.forest.set.Walk(&walk, &k, t.forest.entryMatches); e != 0 {
			won = min(won, t.entries.rank(unitOfTree(e)))
		}
	}
	w.Trees, w.Cuts, w.Entries, w.NS = walk.Groups, walk.Cuts, walk.Entries, CostOfMasks(w.Masks)+walk.NS()
	w.Path = w.Path.Plus(walk.Path())
	return uint16(won >> 32), uint32(won), w
}

// inSearch returns the masks that are hashed, in the order of the search.
func (t *tables) inSearch() (hashed []*tuple) {
	for _, u := range t.tuples {
		if u != nil && u.rules > 0 {
			hashed = append(hashed, u)
		}
	}
	slices.SortFunc(hashed, func(a, b *tuple) int { return cmp.Compare(a.best, b.best) })
	return hashed
}

// packetFor is packetOf with the flag of an IP version, if the rule looks at a field of IP.
func packetFor(r *Rule, random func() uint64) Key {
	key := packetOf(r, random)
	if c := classesOf(r); key.Out.Flags&(FlagIPv4|FlagIPv6) == 0 && c&(1<<classOther) == 0 {
		key.Out.Flags |= FlagIPv4 // a field of IP, of either version
		if c&(1<<classIPv4) == 0 {
			key.Out.Flags ^= FlagIPv4 | FlagIPv6
		}
	}
	return key
}
