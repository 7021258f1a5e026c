package tree

import "sync/atomic"

// Match compares a key with an entry, and returns the rank of its rule.
type Match func(entry Entry, key *Key) (rank uint64, matches bool)

// ClassBits are the bits of a key that determine its class: the flags of IPv4 and IPv6, in a word in host order. No key has both.
type ClassBits struct {
	Word       int
	IPv4, IPv6 uint64
}

// Of returns the class of a key.
func (c ClassBits) Of(k *Key) int {
	switch w := k[c.Word]; {
	case w&c.IPv4 != 0:
		return 1
	case w&c.IPv6 != 0:
		return 2
	}
	return 0
}

// Walk counts the work of lookups.
type Walk struct {
	Groups  int // trees
	Cuts    int
	Lists   int
	Leaves  int // rules and lists
	Entries int // compared with the key
	Nodes   int // loaded: forks, roots, and the nodes below cuts

	// Loaded is called with the index of each word that a program loads. Nil: nothing is called.
	Loaded func(word int)
}

// load loads a word of the memory.
func (w *Walk) load(mem []uint64, at int) Node {
	if w.Loaded != nil {
		w.Loaded(at)
	}
	return Node(atomic.LoadUint64(&mem[at]))
}

// Lookup walks the memory like the program in bpf/tree.h, and returns the entry of the winning rule, or 0. It is safe to call while
// another goroutine changes the set. But the set must not Reclaim memory before the Lookup has returned.
func Lookup(mem []uint64, c ClassBits, key *Key, match Match) Entry {
	var w Walk
	return w.Lookup(mem, c, key, NoRank, match)
}

// Lookup is like the function Lookup. It adds its work to w. It ends where no tree behind has a rule of a lower rank than rank.
func (w *Walk) Lookup(mem []uint64, c ClassBits, key *Key, rank uint64, match Match) Entry {
	root := w.load(mem, c.Of(key))
	if root.Kind() != KindFork {
		entry, _ := w.leaf(mem, root, key, match)
		return entry
	}
	w.Nodes++
	var found Entry
	for g := range root.Count() {
		at := root.Base() + 2*g
		// The program walks the first tree without its rank, which is in the same line.
		if uint64(w.load(mem, at+1)) >= rank && g > 0 {
			break
		}
		if entry, r := w.leaf(mem, w.load(mem, at), key, match); entry != 0 && r < rank {
			found, rank = entry, r
		}
	}
	return found
}

// leaf walks one tree, and returns the first rule of its leaf that matches.
func (w *Walk) leaf(mem []uint64, n Node, key *Key, match Match) (entry Entry, rank uint64) {
	w.Groups++
	w.Nodes++
	for n.Kind() == KindCut {
		w.Cuts++
		w.Nodes++
		n = w.load(mem, n.Base()+int(be64(key[n.Word()])>>n.shift()&n.Mask()))
	}
	if n == 0 {
		return 0, NoRank
	}
	w.Leaves++
	count := 1
	if n.Kind() == KindList {
		w.Lists++
		count = n.Count()
	}
	for i := range count {
		if i > 0 && w.Loaded != nil {
			w.Loaded(n.Base() + (i-1)/2)
		}
		entry = Entry(n.ruleAt(mem, i) &^ hidden)
		w.Entries++
		if rank, ok := match(entry, key); ok {
			return entry, rank
		}
	}
	return 0, NoRank
}

// NS estimates the time of the lookups in nanoseconds, without the parser. It assumes that nodes and entries are in the L2 cache.
func (w *Walk) NS() float64 {
	return nsWalk*float64(w.Groups) + nsCut*float64(w.Cuts) + nsList*float64(w.Lists) +
		nsEntry*float64(w.Leaves) + nsNext*float64(w.Entries-w.Leaves)
}

// Walk is like Lookup. It adds its work to w. rank is that of a rule found before, or NoRank.
func (s *Set) Walk(w *Walk, key *Key, rank uint64, match Match) Entry {
	return w.Lookup(s.mem.words, s.class, key, rank, match)
}

// Lookup returns the entry of the rule that wins for a key, or 0. Programs do not call it: it is for checks and estimates.
func (s *Set) Lookup(key *Key, match Match) Entry { return Lookup(s.mem.words, s.class, key, match) }
