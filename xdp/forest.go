package xdp

import (
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/flowtally/flowtally/xdp/tree"
)

// classBits returns the bits of a key that distinguish the classes of frames.
func classBits() tree.ClassBits {
	var v4, v6 Key
	v4.Out.Flags, v6.Out.Flags = FlagIPv4, FlagIPv6
	return tree.ClassBits{Word: wordHot, IPv4: v4.words()[wordHot], IPv6: v6.words()[wordHot]}
}

// forest holds the best rule of each chain whose tuple is not hashed, in trees.
//
// touch collects changes, and flush applies them together. That is cheaper than changing a tree for each rule, and programs see
// many rules change at once.
type forest struct {
	set      *tree.Set
	entries  *entryStore
	best     uint64   // a lower bound on the ranks of all rules
	bestGone bool     // the rule of this rank may be gone: setRanks looks for the best
	changed  []*chain // since the last flush

	// Functions of the owner.
	reclaim func() error      // waits for a grace period and frees retired memory
	bound   func() int        // tables.treeBound
	costly  func(error) error // tables.costly
	outside func(func())      // Datapath.outside
}

// touch marks a chain whose first rule may have changed.
func (f *forest) touch(c *chain) {
	if !c.changed {
		c.changed = true
		f.changed = append(f.changed, c)
	}
}

// rule reads the rule of an entry as package tree represents it.
func (f *forest) rule(unit uint32) tree.Rule {
	var r Rule
	f.entries.readTree(unit, &r)
	return tree.Rule{
		Key:   tree.Key(*r.Key.words()),
		Mask:  tree.Key(*r.Mask.words()),
		Ports: r.Ports,
		Rank:  f.entries.rank(unit),
		Entry: treeEntryAt(unit),
	}
}

// flush brings the trees up to date with the marked chains, all or none.
func (f *forest) flush() error {
	if len(f.changed) == 0 {
		return nil
	}

	var remove []tree.Entry
	var add []tree.Rule
	next := make([]tree.Entry, len(f.changed))
	for i, c := range f.changed {
		if len(c.entries) > 0 {
			next[i] = treeEntryAt(c.entries[0])
		}
		if next[i] == c.node {
			continue
		}
		if c.node != 0 {
			remove = append(remove, c.node)
		}
		if next[i] != 0 {
			add = append(add, f.rule(c.entries[0]))
		}
	}
	if err := f.exchange(remove, add); err != nil {
		return err
	}

	for i, c := range f.changed {
		c.node, c.changed = next[i], false
	}
	f.changed = f.changed[:0]
	return nil
}

// rebuild builds all trees anew, with the first rule of each of these chains.
func (f *forest) rebuild(chains []*chain) error {
	rules := make([]tree.Rule, 0, len(chains))
	for _, c := range chains {
		if len(c.entries) > 0 {
			rules = append(rules, f.rule(c.entries[0]))
			c.node = rules[len(rules)-1].Entry
		}
	}
	if err := f.set.Build(rules); err != nil {
		return fmt.Errorf("building the trees of %d rules: %w", len(rules), treeError(err))
	}
	f.best, f.bestGone = 0, true
	return nil
}

// exchange changes the trees without Datapath.mu. If their memory is full, it frees retired memory and tries once more.
func (f *forest) exchange(remove []tree.Entry, add []tree.Rule) error {
	if len(remove)+len(add) == 0 {
		return nil
	}

	f.set.Bound = f.bound()
	var err error
	exchange := func() { err = f.set.Exchange(remove, add) }
	f.outside(exchange)
	if errors.Is(err, tree.ErrFull) {
		if err := f.reclaim(); err != nil {
			return err
		}
		f.outside(exchange)
	}
	return treeError(f.costly(err))
}

// treeError replaces the sentinels of package tree by those of this package.
func treeError(err error) error {
	switch {
	case errors.Is(err, tree.ErrDense):
		return fmt.Errorf("%w: more than the %d of the longest list", ErrDense, tree.MaxList)
	case errors.Is(err, tree.ErrFull):
		return fmt.Errorf("%w: %w", ErrFull, err)
	}
	return err
}

// entryMatches compares a key with an entry, as ft_near of bpf/tree.h does.
func (f *forest) entryMatches(e tree.Entry, key *tree.Key) (rank uint64, ok bool) {
	var r Rule
	f.entries.readTree(unitOfTree(e), &r)
	return f.entries.rank(unitOfTree(e)), r.matches((*words)(key))
}

// check compares the trees with a linear matcher, on packets of sampled rules. It guards every load: a bug in the trees must not
// reach the programs. heads are all rules of the trees.
func (f *forest) check(heads []Rule) error {
	const bothVersions = FlagIPv4 | FlagIPv6
	n := min(checked, len(heads))
	for i := range n {
		key := packetOf(&heads[i*len(heads)/n], rand.Uint64)
		if key.Out.Flags&bothVersions == bothVersions {
			continue // no frame has both headers
		}

		want := noRank
		for j := range heads {
			if heads[j].rank() < want && heads[j].matches(key.words()) {
				want = heads[j].rank()
			}
		}

		got := noRank
		k := tree.Key(*key.words())
		if e := f.set.Lookup(&k, f.entryMatches); e != 0 {
			got = f.entries.rank(unitOfTree(e))
		}

		if got != want {
			return fmt.Errorf("checking the trees of %d rules: %w: of a packet of %+v they find rank %#x, not %#x",
				len(heads), errTrees, key, got, want)
		}
	}
	return nil
}

// checked is the number of packets of a check. The linear matcher compares each packet with every rule, so with 65,536 rules a
// check takes about 50 ms.
const checked = 64
