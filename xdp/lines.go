package xdp

import "github.com/flowtally/flowtally/xdp/tree"

// lines are the cache lines of maps that a program touches for a packet, without its counter and the mark of that. The methods load
// what bpf/tables.h and bpf/tree.h load, and stop where they do.
type lines map[line]struct{}

type line struct {
	of memory
	at int
}

// memory is a map, or the constants of a program.
type memory int

const (
	ofSlots memory = iota
	ofRanks
	ofEntries
	ofTrees
	ofConstants
)

const (
	lineBytes = 64

	// nearTuples masks are compared without a function. Their constants are in the instructions (FT_NEAR_TUPLES).
	nearTuples = 2
)

// touch adds the line of a byte.
func (l lines) touch(of memory, at int) { l[line{of, at / lineBytes}] = struct{}{} }

// word adds the line of a word of 8 bytes.
func (l lines) word(of memory, at int) { l.touch(of, at*8) }

// rank adds the line with the rank of an entry.
func (l lines) rank(t *tables, unit uint32) { l.word(ofEntries, rankAt(t.g.units)+int(unit)) }

// tuple adds what the search for a key under one mask touches.
func (l lines) tuple(t *tables, u *tuple, place int, packed []uint64) {
	if !u.hashed {
		l.single(u, place, packed)
		return
	}

	hash := t.hashOf(u, packed)
	tag := tagOf(hash)
	for attempt := range slotAttempts {
		if place >= nearTuples || attempt > 0 {
			l.constants(u, place)
		}
		slot := l.probe(&t.table, &hash, tag)
		if slot == 0 || l.equal(t.entries, unitOf(slot), packed) {
			return
		}
	}
}

// single adds what the comparison with the only key of a mask touches.
func (l lines) single(u *tuple, place int, packed []uint64) {
	c := u.constants(&secret{}, true)
	if place >= nearTuples {
		l.touch(ofConstants, tupleAt(place)+tupleHead)
	}
	for i, w := range u.maskWords {
		if place >= nearTuples {
			l.touch(ofConstants, tupleAt(place)+tupleWords+i)
			l.touch(ofConstants, tupleAt(place)+tupleMask+int(w)*8)
			l.touch(ofConstants, tupleAt(place)+tupleKey+int(w)*8)
		}
		if packed[i] != c.Key[w] {
			return
		}
	}
	l.word(ofSlots, int(u.id))
}

// constants adds what a function loads to hash a key.
func (l lines) constants(u *tuple, place int) {
	l.touch(ofConstants, tupleAt(place)+tupleHead)
	l.touch(ofConstants, tupleAt(place)+tupleSeed)
	for i, w := range u.maskWords {
		l.touch(ofConstants, tupleAt(place)+tupleWords+i)
		l.touch(ofConstants, tupleAt(place)+tupleMask+int(w)*8)
		l.touch(ofConstants, configMul+int(w)*16)
		l.touch(ofConstants, configMul+int(w)*16+8)
	}
}

// probe returns the next slot with a tag, or 0, as ft_probe does.
func (l lines) probe(t *hashTable, at *uint64, tag uint64) uint64 {
	for range slotProbes {
		slot := t.at(*at)
		l.word(ofSlots, maxTuples+int(*at&t.mask))
		*at++
		if slot == 0 || slot>>tagShift == tag {
			return slot
		}
	}
	return 0
}

// equal compares a key with that of an entry in the hash table.
func (l lines) equal(s *entryStore, unit uint32, packed []uint64) bool {
	for i, w := range s.packed(unit, len(packed)) {
		l.word(ofEntries, int(unit)*unitWords+i)
		if w != packed[i] {
			return false
		}
	}
	return true
}

// treeEntry adds what the comparison of a key with an entry in the trees touches.
func (l lines) treeEntry(s *entryStore, unit uint32, key *words) {
	at := int(unit) * unitWords
	l.word(ofEntries, at)

	var r, hot Rule
	s.readTree(unit, &r)
	k, m := r.Key.words(), r.Mask.words()
	for _, w := range []int{wordHot, wordAddr} {
		hot.Key.words()[w], hot.Mask.words()[w] = k[w], m[w]
	}
	hot.Ports[0] = r.Ports[0]
	if !hot.matches(key) {
		return
	}

	at += treeRest
	if s.words[int(unit)*unitWords]&treeInner != 0 {
		l.word(ofEntries, at)
		inner := Rule{Ports: [2]Ports{1: r.Ports[1]}}
		inner.Key.words()[wordHot+levelWords], inner.Mask.words()[wordHot+levelWords] = k[wordHot+levelWords], m[wordHot+levelWords]
		if !inner.matches(key) {
			return
		}
		at += 2
	}
	for w := wordAddr + 1; w < Words; w++ {
		if s.words[int(unit)*unitWords]>>w&1 == 0 {
			continue
		}
		l.word(ofEntries, at)
		at += 2
		if key[w]&m[w] != k[w] {
			return
		}
	}
}

// walk looks up a key in the trees, and adds what that touches.
func (l lines) walk(t *tables, w *tree.Walk, key *words, rank uint64) tree.Entry {
	w.Loaded = func(word int) { l.word(ofTrees, word) }
	k := tree.Key(*key)
	return t.forest.set.Walk(w, &k, rank, func(e tree.Entry, k *tree.Key) (uint64, bool) {
		l.treeEntry(t.entries, unitOfTree(e), key)
		return t.forest.entryMatches(e, k)
	})
}
