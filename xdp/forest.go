package xdp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"

	"github.com/flowtally/flowtally/xdp/tree"
)

// The entry of a rule in the trees, as bpf/tree.h has it.
const (
	treeAlign      = 4            // units: the entry of a rule on the IPv4 5-tuple is one line of the cache
	treeRest       = 8            // words before those that few rules have
	treeWordBits   = 1<<Words - 4 // bit w: the entry has word w
	treeInner      = 1 << Words
	treePlace      = Words + 1 // shift
	treeEntryWords = treeRest + 2 + 2*(Words-2)

	anyPort = 1<<16 - 1
)

// lastOf is the last port of a range, of which the zero value is every port.
func lastOf(r Range) uint16 {
	if r == (Range{}) {
		return anyPort
	}
	return r.Last
}

// portsWord is a number that no other ranges have.
func portsWord(p Ports) uint64 {
	return uint64(p.Src.First) | uint64(lastOf(p.Src))<<16 | uint64(p.Dst.First)<<32 | uint64(lastOf(p.Dst))<<48
}

// classBits are the bits of a key that tell the class of its frame.
func classBits() tree.ClassBits {
	var v4, v6 Key
	v4.Out.Flags, v6.Out.Flags = FlagIPv4, FlagIPv6
	return tree.ClassBits{Word: wordHot, IPv4: v4.words()[wordHot], IPv6: v6.words()[wordHot]}
}

// ranged reports whether a rule has a range.
func (r *Rule) ranged() bool {
	for _, p := range r.Ports {
		for _, at := range []Range{p.Src, p.Dst} {
			if at.First != 0 || lastOf(at) != anyPort {
				return true
			}
		}
	}
	return false
}

// treeEntry appends the words of the entry of r.
func treeEntry(dst []uint64, r *Rule) []uint64 {
	k, m := r.Key.words(), r.Mask.words()
	dst = append(dst, 0, r.rank(), m[wordAddr], k[wordAddr])
	dst = append(tree.AppendBounds(dst, k[wordHot], m[wordHot], r.Ports[0]), m[wordHot], k[wordHot])
	if r.Ports[1] != (Ports{}) {
		dst[0] |= treeInner
		dst = tree.AppendBounds(dst, k[wordHot+levelWords], m[wordHot+levelWords], r.Ports[1])
	}
	rest := uint64(len(dst))
	for w := wordAddr + 1; w < Words; w++ {
		if m[w] != 0 {
			dst[0] |= 1 << w
			dst = append(dst, m[w], k[w])
		}
	}
	if dst[0] != 0 {
		dst[0] |= rest << treePlace
	}
	dst[0] |= slotOf(0, r.Counter, r.Drop, 1)
	return dst
}

// readTree fills in key, mask and ranges of the rule at a unit.
func (s *entryStore) readTree(unit uint32, r *Rule) {
	e := s.words[int(unit)*unitWords:]
	k, m := r.Key.words(), r.Mask.words()
	m[wordAddr], k[wordAddr], m[wordHot], k[wordHot] = e[2], e[3], e[6], e[7]
	rest := e[treeRest:]
	if e[0]&treeInner != 0 {
		rest = rest[2:]
	}
	for w := wordAddr + 1; w < Words; w++ {
		if e[0]>>w&1 != 0 {
			m[w], k[w], rest = rest[0], rest[1], rest[2:]
		}
	}
	r.Ports[0] = tree.RangesOf(e[4:], m[wordHot])
	if e[0]&treeInner != 0 {
		r.Ports[1] = tree.RangesOf(e[treeRest:], m[wordHot+levelWords])
	}
}

// treeEntryAt is the entry at a unit as the trees have it, and unitOfTree its unit.
func treeEntryAt(unit uint32) tree.Entry { return tree.Entry(unit)<<unitShift | 1 }
func unitOfTree(e tree.Entry) uint32     { return uint32(e >> unitShift) }

// treeUnits is the number of units of the entry at a unit.
func (s *entryStore) treeUnits(unit uint32) int {
	words := s.words[int(unit)*unitWords]
	n := treeRest + 2*bits.OnesCount64(words&treeWordBits)
	if words&treeInner != 0 {
		n += 2
	}
	return sizeFor(n)
}

// forest is the rules in the trees: the first of each chain.
type forest struct {
	set     *tree.Set
	entries *entryStore
	best    uint64       // at most the rank of the best rule
	changed []*chain     // since flush
	reclaim func() error // frees retired memory after a grace period
	bound   func() int   // steps of the worst path; 0: no bound
	outside func(func()) // RuleSet.outside
	costly  func(error) error
}

// touch notes that the trees may have another rule of a chain than its first.
func (f *forest) touch(c *chain) {
	if !c.changed {
		c.changed = true
		f.changed = append(f.changed, c)
	}
}

// rule is the rule of an entry as the trees take it.
func (f *forest) rule(unit uint32) tree.Rule {
	var r Rule
	f.entries.readTree(unit, &r)
	return tree.Rule{
		Key: tree.Key(*r.Key.words()), Mask: tree.Key(*r.Mask.words()), Ports: r.Ports,
		Rank: f.entries.rank(unit), Entry: treeEntryAt(unit),
	}
}

// flush makes the trees have the first rule of every chain, all changes or none.
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

// rebuild makes the first rules of these chains the rules of the trees.
func (f *forest) rebuild(chains []*chain) error {
	rules := make([]tree.Rule, 0, len(chains))
	for _, c := range chains {
		if len(c.entries) > 0 {
			rules = append(rules, f.rule(c.entries[0]))
			c.node = rules[len(rules)-1].Entry
		}
	}
	if err := f.set.Build(rules); err != nil {
		return fmt.Errorf("building the trees of %d rules: %w", len(rules), refused(err))
	}
	f.best = 0 // tables.setRanks looks
	return nil
}

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
	return refused(f.costly(err))
}

// refused gives an error of package tree the sentinel of this package.
func refused(err error) error {
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

// matches is the linear matcher's comparison.
func (r *Rule) matches(key *words) bool {
	k, m := r.Key.words(), r.Mask.words()
	for w := range k {
		if key[w]&m[w] != k[w] {
			return false
		}
	}
	for level, p := range r.Ports {
		ports := bytesOf(key[level*levelWords:][:1])
		if !within(p.Src, ports) || !within(p.Dst, ports[2:]) {
			return false
		}
	}
	return true
}

// within reports whether a port, in the order of the network, is in a range.
func within(r Range, port []byte) bool {
	n := binary.BigEndian.Uint16(port)
	return r == Range{} || n >= r.First && n <= r.Last
}
