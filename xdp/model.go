package xdp

import (
	"context"
	"log/slog"

	"github.com/flowtally/flowtally/xdp/tree"
)

// Model is the classifier of some rules in the memory of this process. Use it to estimate the cost of rules, without privileges and
// without the kernel.
type Model struct {
	t      *tables
	hashed []*tuple // see inSearch

	InTrees int    // number of rules in the trees
	Trees   [3]int // number of trees for frames without IP, for IPv4 and for IPv6
	Words   int    // memory of the trees, in words of 8 bytes
}

// NewModel makes a model of rules, in tables for max rules. If hash is false, all rules go into the trees. The error is a
// [CostError] if a packet could touch more than worst nodes and entries. A worst of 0 means no bound.
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

// Hashed calls f for each hashed mask, in the order in which programs search them.
func (m *Model) Hashed(f func(mask Key, rules int)) {
	for _, u := range m.hashed {
		var k Key
		*k.words() = u.mask
		f(k, u.rules)
	}
}

// Lookup looks up a packet that matches r. Bits that r does not look at are random. It returns Priority and Order of the rule that
// wins, which may be another one.
func (m *Model) Lookup(r *Rule, random func() uint64) (priority uint16, order uint32, w Work) {
	key := packetFor(r, random)
	return m.Find(&key)
}

// Find looks up the packet with this key, and returns what Lookup returns.
func (m *Model) Find(key *Key) (priority uint16, order uint32, w Work) {
	return m.t.find(m.hashed, key)
}

// Worst returns what Cost.Worst would be for a datapath with these rules.
func (m *Model) Worst() [3]Path { return m.t.worst() }

// newModel makes empty tables in the memory of this process.
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
