package tree

import (
	"encoding/binary"
	"math/bits"
)

// Words is the number of 64-bit words of a key.
const Words = 18

// Key is the key of a packet, as words in the byte order of the host.
type Key [Words]uint64

// Range is a range of ports, including both ends. The zero Range contains every port, and so does {0, 65535}.
type Range struct{ First, Last uint16 }

// Ranges are the ranges of source and destination ports at one level of headers. The ports are the first four bytes in word 0 of the
// level.
type Ranges struct{ Src, Dst Range }

// Rule matches a key that equals Key under Mask and has its ports in Ports. Key must not have bits outside of Mask.
type Rule struct {
	Key, Mask Key
	Ports     [2]Ranges // for the outer and the inner headers
	Rank      uint64    // the lowest wins; must be below NoRank, and different for rules that overlap
	Entry     Entry     // must be different for each rule of a set
}

// Entry is the offset of a rule's entry, with bit 0 set. The offset is a multiple of EntryAlign below 1<<28. An Entry of 0 means no
// rule.
type Entry uint32

// portWords are the words whose first four bytes are the ports, for the outer and the inner headers.
var portWords = [2]int{0, Words / 2}

// field is one word of a rule, as a big-endian number.
type field struct {
	word      int
	key, mask uint64
}

// rule is a Rule prepared for the builder. Ranges that a mask can express are among the fields.
type rule struct {
	fields []field
	ranges []portRange
	rank   uint64
	entry  Node

	classes uint8          // bit c is set if some key of class c matches
	groups  [Classes]uint8 // by class: bit g is set if the rule is in the tree of group g
	planned [Classes]uint8 // groups in the trees being built

	// In the tree being built.
	copies  int32   // number of leaves with the rule
	share   float64 // share of its packets that reach the current node
	ejected bool    // goes to the next group
}

// portRange is a range that a mask cannot express. The port is the low 16 bits of be64(word) >> shift.
type portRange struct {
	word, shift int
	first, last uint64
}

// be64 converts a word of a key to a big-endian number. Then adjacent bits of a header are adjacent, on every host.
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

			// Every port of the range begins with the common prefix of both ends. Move that prefix to the mask.
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

// at returns key and mask of the rule for a word.
func (r *rule) at(word int) (key, mask uint64) {
	for i := range r.fields {
		if f := &r.fields[i]; f.word == word {
			return f.key, f.mask
		}
	}
	return 0, 0
}

// overlaps reports whether some key may match both rules. It may report an overlap where there is none.
func (r *rule) overlaps(o *rule) bool {
	for i := range r.fields {
		f := &r.fields[i]
		if key, mask := o.at(f.word); (key^f.key)&mask&f.mask != 0 {
			return false
		}
	}
	// Ranges are compared with ranges only, and not with masks. If that reports a wrong overlap, it just costs time.
	for _, p := range r.ranges {
		for _, q := range o.ranges {
			if p.word == q.word && p.shift == q.shift && (p.first > q.last || q.first > p.last) {
				return false
			}
		}
	}
	return true
}
