package tree

import (
	"encoding/binary"
	"math/bits"
)

// Words is the number of 64-bit words of a key.
const Words = 18

// Key is the key of a packet, word for word as the host loads it.
type Key [Words]uint64

// Range is a range of ports, with both ends. The zero Range is every port, as is {0, 65535}.
type Range struct{ First, Last uint16 }

// Ranges are the source and the destination ports of one level of headers. The ports are the first
// four bytes of word 0 of the level.
type Ranges struct{ Src, Dst Range }

// Rule matches a key that equals Key under Mask, and whose ports are in Ports. Key has no bit outside Mask.
type Rule struct {
	Key, Mask Key
	Ports     [2]Ranges // of the outer and of the inner headers
	Rank      uint64    // the lowest wins; rules that overlap differ in it; below NoRank
	Entry     Entry     // different for each rule of a set
}

// Entry is the place of a rule's entry, a multiple of EntryAlign below 1<<28, with bit 0 set. 0 is no rule.
type Entry uint32

// portWords are the words with ports in their first four bytes: of the outer and the inner headers.
var portWords = [2]int{0, Words / 2}

// field is one word of a rule, as a big-endian number.
type field struct {
	word      int
	key, mask uint64
}

// rule is a Rule as the builder reads it. A range that is a prefix is a part of the fields.
type rule struct {
	fields []field
	ranges []portRange
	rank   uint64
	entry  Node

	classes uint8          // bit c: some key of class c matches
	groups  [Classes]uint8 // by class, bit g: the rule is in the tree of group g
	planned [Classes]uint8 // groups in the trees that are being built

	// In the tree that is being built.
	copies  int32   // leaves
	share   float64 // of its packets, those that come to the node; 1 unless the tree is a single one
	ejected bool    // it goes to the next group
}

// portRange is a range that no mask expresses. The port is the low 16 bits of be64(word) >> shift.
type portRange struct {
	word, shift int
	first, last uint64
}

// be64 returns a word, which the host has loaded from a key, as a big-endian number.
func be64(w uint64) uint64 {
	var b [8]byte
	binary.NativeEndian.PutUint64(b[:], w)
	return binary.BigEndian.Uint64(b[:])
}

func newRule(r *Rule) *rule {
	n := &rule{rank: r.Rank, entry: Node(r.Entry)}
	var key, mask [Words]uint64
	for w := range mask {
		key[w], mask[w] = be64(r.Key[w]), be64(r.Mask[w])
	}
	for level, p := range r.Ports {
		for i, pr := range [2]Range{p.Src, p.Dst} {
			if pr == (Range{}) || pr == (Range{0, 0xffff}) {
				continue
			}
			w, shift := portWords[level], 48-16*i
			first, last := uint64(pr.First), uint64(pr.Last)

			// Every port of the range has the common prefix of both ends, so the mask gets it.
			free := uint64(1)<<bits.Len64(first^last) - 1
			if first&free != 0 || last&free != free {
				n.ranges = append(n.ranges, portRange{w, shift, first, last})
			}
			prefix := (0xffff &^ free) << shift
			if (key[w]^first<<shift)&mask[w]&prefix != 0 {
				n.ranges = append(n.ranges, portRange{w, shift, 1, 0}) // nothing matches
			}
			key[w] |= first << shift & prefix &^ mask[w]
			mask[w] |= prefix
		}
	}
	for w, m := range mask {
		if m != 0 {
			n.fields = append(n.fields, field{w, key[w] & m, m})
		}
	}
	return n
}

// at returns key and mask of the rule in a word.
func (r *rule) at(word int) (key, mask uint64) {
	for i := range r.fields {
		if f := &r.fields[i]; f.word == word {
			return f.key, f.mask
		}
	}
	return 0, 0
}

// overlaps reports whether a key may match both.
func (r *rule) overlaps(o *rule) bool {
	for i := range r.fields {
		f := &r.fields[i]
		if key, mask := o.at(f.word); (key^f.key)&mask&f.mask != 0 {
			return false
		}
	}
	// A range is not compared with the mask of the other rule. If no key matches both for that, callers lose time alone.
	for _, p := range r.ranges {
		for _, q := range o.ranges {
			if p.word == q.word && p.shift == q.shift && (p.first > q.last || q.first > p.last) {
				return false
			}
		}
	}
	return true
}
