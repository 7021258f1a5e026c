package xdp

import (
	"context"
	"log/slog"

	"github.com/flowtally/flowtally/xdp/tree"
)

// Model is the classifier of some rules in the memory of this process, which no program reads. It is for estimates of cost.
type Model struct {
	t      *tables
	hashed []*tuple // in the order of the search

	InTrees int    // number of rules in the trees
	Trees   [3]int // number of trees: of frames without IP, of IPv4, of IPv6
	Words   int    // memory of the trees, in words of 8 bytes
}

// NewModel makes a model with room for max rules, and adds rules together. If hash is false, all rules go into the trees. It
// calls no kernel. The error is a [CostError] if a packet could touch more than worst nodes and entries; 0 is no bound.
func NewModel(rules []Rule, max, worst int, hash bool) (*Model, error) {
	t, err := newModel(max)
	if err != nil {
		return nil, err
	}
	t.allInTrees = !hash
	t.worstCost = worst

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

// Hashed calls f for each hashed mask, in the order of the search.
func (m *Model) Hashed(f func(mask Key, rules int)) {
	for _, u := range m.hashed {
		var k Key
		*k.words() = u.mask
		f(k, u.rules)
	}
}

// Lookup looks up a packet that r matches, whose other bits are random. It returns the Priority and the Order of the rule
// that wins.
func (m *Model) Lookup(r *Rule, random func() uint64) (priority uint16, order uint32, w Work) {
	key := packetFor(r, random)
	return m.Find(&key)
}

// Find looks up the packet with a key. Its results are those of Lookup.
func (m *Model) Find(key *Key) (priority uint16, order uint32, w Work) {
	return m.t.find(m.hashed, key)
}

// Worst is Cost.Worst of the model.
func (m *Model) Worst() [3]Path { return m.t.worst() }

// newModel makes tables without rules, in memory of this process.
func newModel(rules int) (*tables, error) {
	g, err := newGeometry(Options{MaxRules: rules, MaxCounters: 1}, 1)
	if err != nil {
		return nil, err
	}
	meta := metaOf(make([]uint64, metaBytes(g)/8), g)
	drawSecret(meta.secret)
	entries := make([]uint64, rankAt(g.units)+g.units)
	slots := make([]uint64, maxTuples+g.slots)
	ranks := make([]uint64, maxTuples+1)
	trees := tree.New(make([]uint64, g.words), tree.Options{Class: classBits()})

	t := newTables(g, meta, secretOf(meta.secret), entries, slots, ranks, trees)
	t.log = slog.New(slog.DiscardHandler)
	t.grace = func() error { return nil }
	t.load = func() error { return nil }
	return t, nil
}
