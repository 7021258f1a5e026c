package xdp

import (
	"encoding/binary"

	"github.com/flowtally/flowtally/xdp/tree"
)

// tuple is the rules of one mask. They are in the hash table or in the trees. While a mask goes from one to the other, it has
// two tuples.
type tuple struct {
	id        uint8 // treeID: its rules are in the trees
	mask      words
	maskWords []uint8           // the words that are not 0 in mask, ascending
	need      uint32            // needOf all its rules, also of those that are gone
	chains    map[string]*chain // by packed key
	rules     int

	// hashed: its keys are in the hash table. Otherwise the tuple is single: it has at most one key, which is a constant of
	// the programs, and the slot of that key is the single slot of the id.
	hashed bool

	// key is the key of a single tuple, packed. Once programs know it, it stays.
	key string

	// place is the place among the tuples of the attached programs. -1: they do not know the tuple.
	place int

	// best is at most the rank of the best rule. Behind a load it is that rank.
	best uint64
}

// chain is the rules of one key, best first. Programs see the first alone.
type chain struct {
	hash    uint64
	entries []uint32 // units

	// In the trees.
	node    tree.Entry // the entry that the trees have; 0: none
	changed bool       // node is perhaps not the first entry any more
}

// treeID is the id of all tuples in the trees.
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

// pack appends the words of k under the mask, without those that the mask lacks.
func (u *tuple) pack(dst []uint64, k *words) []uint64 {
	for _, w := range u.maskWords {
		dst = append(dst, k[w]&u.mask[w])
	}
	return dst
}

// keyBuffer is large enough for keyOf.
type keyBuffer [Words + 2]uint64

// keyOf appends the words by which the tuple tells its rules apart: the packed key, and in the trees the ranges of ports.
func (u *tuple) keyOf(dst []uint64, r *Rule) []uint64 {
	dst = u.pack(dst, r.Key.words())
	if u.inTree() {
		dst = append(dst, portsWord(r.Ports[0]), portsWord(r.Ports[1]))
	}
	return dst
}

// constants returns the constants of the tuple for a load, as a single or as a hashed one.
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
