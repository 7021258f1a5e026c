package xdp

import (
	"encoding/binary"

	"github.com/flowtally/flowtally/xdp/tree"
)

// tuple is one distinct mask and the rules that have it. The rules of a mask are in the slot table or in the
// trees, and for a while in both: then there are two tuples.
type tuple struct {
	id   uint8 // treeTuple: its rules are in the trees
	mask words
	word []uint8 // the words that mask has, ascending
	need uint32  // of all its rules, ever
	// hashed: its keys are in the slot table; otherwise its one key is a constant
	// of the programs, and its slot is the single slot id.
	hashed bool
	// key is that key, packed. A tuple that programs know takes no other one.
	key string
	// place in the running programs, or -1: no program knows it.
	place  int
	chains map[string]*chain // by packed words
	rules  int
	// best is at most the rank of its best rule; exact after a load.
	best uint64
}

// chain is the rules of one key, best first. The programs see the first alone.
type chain struct {
	hash    uint64
	entries []uint32   // units
	node    tree.Entry // in the trees; 0: none
	changed bool       // node is not of the first entry, perhaps
}

// treeTuple is the id of all tuples of the trees.
const treeTuple = 0xff

func (t *tuple) inTree() bool { return t.id == treeTuple }

func newTuple(id uint8, mask *words) *tuple {
	t := &tuple{id: id, mask: *mask, place: -1, best: noRank, chains: map[string]*chain{}}
	for w, m := range mask {
		if m != 0 {
			t.word = append(t.word, uint8(w))
		}
	}
	return t
}

// pack appends the words of k under the mask.
func (t *tuple) pack(dst []uint64, k *words) []uint64 {
	for _, w := range t.word {
		dst = append(dst, k[w]&t.mask[w])
	}
	return dst
}

// keyBuffer holds the words by which a tuple tells its rules apart.
type keyBuffer [Words + 2]uint64

// keyOf appends the words by which the tuple tells its rules apart: the key, and in a tree the ranges.
func (t *tuple) keyOf(dst []uint64, r *Rule) []uint64 {
	dst = t.pack(dst, r.Key.words())
	if t.inTree() {
		dst = append(dst, portsWord(r.Ports[0]), portsWord(r.Ports[1]))
	}
	return dst
}

// constants of the tuple for a load; hashed as it will be then.
func (t *tuple) constants(s *secret, single bool) flowtallyFtTuple {
	c := flowtallyFtTuple{Id: uint32(t.id), Single: uint32(t.id) * 8, N: uint32(len(t.word)), Seed: s.tupleSeed(t.id), Mask: t.mask}
	if single {
		c.Flags = tupleSingle
		for i, w := range t.word {
			c.Key[w] = binary.NativeEndian.Uint64([]byte(t.key)[8*i:])
		}
	}
	for i, w := range t.word {
		c.Words |= 1 << w
		c.Word[i] = w
	}
	return c
}

const tupleSingle = 1 // FT_T_SINGLE
