package xdp

import (
	"context"
	"log/slog"

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
	t.allInTrees, t.worstCost = !hash, worst
	come := make([]swap, len(rules))
	for i := range rules {
		come[i].to = &rules[i]
	}
	if err := t.come(context.Background(), come); err != nil {
		return nil, err
	}
	m := &Model{t: t, Trees: t.forest.set.Trees(), Words: t.forest.set.Words()}
	for _, u := range t.treeTuples {
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
