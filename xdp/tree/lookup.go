package tree

import "sync/atomic"

// Entry compares a key with the rule of a slot, and returns the rule's rank.
type Entry func(slot uint64, key *Key) (rank uint64, matches bool)

// ClassBits are the bits of a key that tell its class: the bits of the IPv4 flag and of the IPv6 flag, as the host
// loads the word. A key never has both.
type ClassBits struct {
	Word       int
	IPv4, IPv6 uint64
}

// Of is the class of a key.
func (c ClassBits) Of(k *Key) int {
	switch w := k[c.Word]; {
	case w&c.IPv4 != 0:
		return 1
	case w&c.IPv6 != 0:
		return 2
	}
	return 0
}

// Walk is the work of one lookup.
type Walk struct {
	Groups, Cuts, Lists, Entries int
	Leaves                       int // slots and lists
}

// Lookup walks the memory as bpf/tree.h does, and returns the slot of the rule that wins, or 0. It may be called
// while the set changes; the memory of blocks that it may see is not reused before a grace period.
func Lookup(mem []uint64, c ClassBits, key *Key, entry Entry) uint64 {
	var w Walk
	return w.Lookup(mem, c, key, entry)
}

// Lookup is the function Lookup, and adds its work to w.
func (w *Walk) Lookup(mem []uint64, c ClassBits, key *Key, entry Entry) uint64 {
	root := Node(atomic.LoadUint64(&mem[c.Of(key)]))
	if root.Kind() != KindFork {
		slot, _ := w.leaf(mem, root, key, entry)
		return slot
	}
	var found uint64
	rank := NoRank
	for g := range root.Count() {
		at := root.Base() + 2*g
		if atomic.LoadUint64(&mem[at+1]) >= rank {
			break
		}
		if slot, r := w.leaf(mem, Node(atomic.LoadUint64(&mem[at])), key, entry); slot != 0 && r < rank {
			found, rank = slot, r
		}
	}
	return found
}

func (w *Walk) leaf(mem []uint64, n Node, key *Key, entry Entry) (slot, rank uint64) {
	w.Groups++
	for n.Kind() == KindCut {
		w.Cuts++
		n = Node(atomic.LoadUint64(&mem[n.Base()+int(be64(key[n.Word()])>>n.shift()&n.Mask())]))
	}
	if n.Kind() == KindSlot {
		if n == 0 {
			return 0, NoRank
		}
		n &^= hidden
		w.Leaves++
		w.Entries++
		if rank, ok := entry(uint64(n), key); ok {
			return uint64(n), rank
		}
		return 0, NoRank
	}
	w.Leaves++
	w.Lists++
	for i := range n.Count() {
		slot := atomic.LoadUint64(&mem[n.Base()+i]) &^ uint64(hidden)
		w.Entries++
		if rank, ok := entry(slot, key); ok {
			return slot, rank
		}
	}
	return 0, NoRank
}

// NS estimates the time of the lookups, in nanoseconds above the parser, for packets that find nodes and entries in
// the second level of the cache.
func (w *Walk) NS() float64 {
	return nsWalk*float64(w.Groups) + nsCut*float64(w.Cuts) + nsList*float64(w.Lists) +
		nsEntry*float64(w.Leaves) + nsNext*float64(w.Entries-w.Leaves)
}
