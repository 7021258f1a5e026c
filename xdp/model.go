package xdp

import (
	"cmp"
	"context"
	"log/slog"
	"math/rand/v2"
	"slices"

	"github.com/flowtally/flowtally/xdp/tree"
)

// Model is the classifier of rules in the memory of this process, which no program reads: for estimates of its cost.
type Model struct {
	t       *tables
	hashed  []*tuple // in the order of the search
	InTrees int      // rules
	Trees   [3]int   // of frames without IP, of IPv4, of IPv6
	Words   int      // of 8 bytes, that the trees take
}

// NewModel adds rules together, to tables for max rules. If hash is false, all rules are in trees. It calls no kernel.
// Rules of which a packet could touch more than worst nodes and entries are a [CostError]; 0 is no bound.
func NewModel(rules []Rule, max, worst int, hash bool) (*Model, error) {
	t, err := newModel(max)
	if err != nil {
		return nil, err
	}
	t.unhashed, t.worstCost = !hash, worst
	come := make([]move, len(rules))
	for i := range rules {
		come[i].to = &rules[i]
	}
	if err := t.come(context.Background(), come); err != nil {
		return nil, err
	}
	m := &Model{t: t, Trees: t.forest.set.Trees(), Words: t.forest.set.Words()}
	for _, u := range t.treed {
		m.InTrees += u.rules
	}
	m.hashed = t.inSearch()
	return m, nil
}

// Hashed calls f for each mask whose rules are in the hash table, in the order of the search.
func (m *Model) Hashed(f func(mask Key, rules int)) {
	for _, u := range m.hashed {
		var k Key
		*k.words() = u.mask
		f(k, u.rules)
	}
}

// Work is the work of a lookup, and its estimated time in ns.
type Work struct {
	Masks, Trees, Cuts, Entries int
	Path                        Path // a hashed mask counts as one node
	NS                          float64
}

// Lookup looks a packet up that r matches and whose other bits are random, and returns the Priority and the Order of the
// rule that wins.
func (m *Model) Lookup(r *Rule, random func() uint64) (priority uint16, order uint32, w Work) {
	key := packetFor(r, random)
	return m.Find(&key)
}

// Find is Lookup of the packet that has a key.
func (m *Model) Find(key *Key) (priority uint16, order uint32, w Work) {
	return m.t.find(m.hashed, key)
}

// Worst returns a path for each class of frames. No packet of the class touches more.
func (m *Model) Worst() [3]Path { return m.t.worst() }

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

// sampledPackets is the number of packets of which Cost has the mean.
const sampledPackets = 1024

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

// CostOfMasks is the estimated time in ns of a search of n hashed masks.
func CostOfMasks(n int) float64 {
	if n == 0 {
		return 0
	}
	return costFirstMask + costNextMask*float64(n-1)
}

// newModel makes tables without rules, in memory of this process.
func newModel(rules int) (*tables, error) {
	g, err := newGeometry(Options{MaxRules: rules, MaxCounters: 1}, 1)
	if err != nil {
		return nil, err
	}
	meta := metaOf(make([]uint64, metaBytes(g)/8), g)
	drawSecret(meta.secret)
	set := tree.New(make([]uint64, g.words), tree.Options{Class: classBits()})
	t := newTables(g, meta, secretOf(meta.secret), make([]uint64, rankAt(g.units)+g.units), make([]uint64, maxTuples+g.slots), make([]uint64, maxTuples+1), set)
	t.log, t.grace = slog.New(slog.DiscardHandler), func() error { return nil }
	t.load = t.grace
	return t, nil
}
