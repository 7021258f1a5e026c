package xdp

import (
	"encoding/binary"

	"github.com/flowtally/flowtally/xdp/tree"
)

// tuple has the rules of one mask. They are either in the hash table or in the trees. A mask can have one tuple in each, because rules
// with ranges always go into the trees.
type tuple struct {
	id        uint8 // treeID if the rules are in the trees
	mask      words
	maskWords []uint8           // indexes of the words of mask other than 0, ascending
	need      uint64            // the union of needOf over its rules, including removed ones
	chains    map[string]*chain // by packed key
	rules     int

	// hashed is set if the keys are in the hash table. Otherwise the tuple is single: it has at most one key, which is a constant
	// of the programs. The slot of that key is in tables.singles.
	hashed bool

	// key is the packed key of a single tuple. It cannot change once programs know it.
	key string

	// place is the index of the tuple in the search of the attached programs, or -1 if they do not search it.
	place int

	// best is a lower bound on the ranks of the rules. After a load it is exact.
	best uint64
}

// chain has the rules of one key, best first. Programs see only the first.
type chain struct {
	hash    uint64
	entries []uint32 // units

	// In the trees only.
	node    tree.Entry // the entry now in the trees, or 0
	changed bool       // the first entry may have changed since
}

// treeID is the id shared by all tuples in the trees.
const treeID = 0xff

func (u *tuple) inTree() bool { return u.id == treeID }

func newTuple(id uint8, mask *words) *tuple {
	u := &tuple{
		id:     id,
		mask:   *mask,
		place:  -1,
		best:   noRank,
		chains: map[string]*chain{},
	}
	for w, m := range mask {
		if m != 0 {
			u.maskWords = append(u.maskWords, uint8(w))
		}
	}
	return u
}

// pack appends the words of k under the mask. It skips words where the mask is 0.
func (u *tuple) pack(dst []uint64, k *words) []uint64 {
	for _, w := range u.maskWords {
		dst = append(dst, k[w]&u.mask[w])
	}
	return dst
}

// keyBuffer is large enough for keyOf.
type keyBuffer [Words + 2]uint64

// keyOf appends the words that identify the chain of a rule: the packed key, and in the trees also the ranges of ports.
func (u *tuple) keyOf(dst []uint64, r *Rule) []uint64 {
	dst = u.pack(dst, r.Key.words())
	if u.inTree() {
		dst = append(dst, portsWord(r.Ports[0]), portsWord(r.Ports[1]))
	}
	return dst
}

// constants returns the constants of the tuple for the next programs.
func (u *tuple) constants(s *secret, single bool) flowtallyFtTuple {
	c := flowtallyFtTuple{
		Id:     uint32(u.id),
		Single: uint32(u.id) * 8,
		N:      uint32(len(u.maskWords)),
		Seed:   s.tupleSeed(u.id),
		Mask:   u.mask,
	}
	if single {
		c.Flags = tupleSingle
		for i, w := range u.maskWords {
			c.Key[w] = binary.NativeEndian.Uint64([]byte(u.key)[8*i:])
		}
	}
	for i, w := range u.maskWords {
		c.Words |= 1 << w
		c.Word[i] = w
	}
	return c
}

const tupleSingle = 1 // FT_T_SINGLE of bpf/config.h
