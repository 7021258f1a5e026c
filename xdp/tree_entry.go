package xdp

import (
	"math/bits"

	"github.com/flowtally/flowtally/xdp/tree"
)

// The entry of a rule in the trees, which bpf/tree.h reads. In 64-bit words:
//
//	0     counter and action, as in a slot, and a bitmap of the words that follow
//	1     rank
//	2, 3  mask and key of the word with addresses
//	4, 5  bounds of the outer ports and the protocol (tree.AppendBounds)
//	6, 7  mask and key of the word with ports and protocol
//	8..   bounds of the inner ports, if the rule has such ranges; mask and key of every other word with a mask
const (
	treeAlign      = 4            // units: an entry for the IPv4 5-tuple fills exactly one cache line
	treeRest       = 8            // words present in every entry
	treeWordBits   = 1<<Words - 4 // in word 0, bit w: the entry has word w of the key
	treeInner      = 1 << Words   // in word 0: the entry has bounds of the inner ports
	treePlace      = Words + 1    // in word 0, shift: where the other words of the key begin
	treeEntryWords = treeRest + 2 + 2*(Words-2)

	anyPort = 1<<16 - 1
)

// portsWord packs ranges into one number.
func portsWord(p Ports) uint64 {
	return uint64(p.Src.First) | uint64(lastOf(p.Src))<<16 | uint64(p.Dst.First)<<32 | uint64(lastOf(p.Dst))<<48
}

// treeEntry appends the words of an entry for r.
func treeEntry(dst []uint64, r *Rule) []uint64 {
	k, m := r.Key.words(), r.Mask.words()
	dst = append(dst, 0, r.rank(), m[wordAddr], k[wordAddr])
	dst = tree.AppendBounds(dst, k[wordHot], m[wordHot], r.Ports[0])
	dst = append(dst, m[wordHot], k[wordHot])
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

// readTree reads key, mask and ranges of a rule from its entry in the trees.
func (s *entryStore) readTree(unit uint32, r *Rule) {
	e := s.words[int(unit)*unitWords:]
	k, m := r.Key.words(), r.Mask.words()
	m[wordAddr], k[wordAddr] = e[2], e[3]
	m[wordHot], k[wordHot] = e[6], e[7]
	rest := e[treeRest:]
	if e[0]&treeInner != 0 {
		rest = rest[2:]
	}
	for w := wordAddr + 1; w < Words; w++ {
		if e[0]>>w&1 != 0 {
			m[w], k[w] = rest[0], rest[1]
			rest = rest[2:]
		}
	}

	r.Ports[0] = tree.RangesOf(e[4:], m[wordHot])
	if e[0]&treeInner != 0 {
		r.Ports[1] = tree.RangesOf(e[treeRest:], m[wordHot+levelWords])
	}
}

// treeEntryAt converts the unit of an entry to the representation in the trees. unitOfTree converts it back.
func treeEntryAt(unit uint32) tree.Entry { return tree.Entry(unit)<<unitShift | 1 }

func unitOfTree(e tree.Entry) uint32 { return uint32(e >> unitShift) }

// treeUnits returns the size of an entry in the trees, in units.
func (s *entryStore) treeUnits(unit uint32) int {
	words := s.words[int(unit)*unitWords]
	n := treeRest + 2*bits.OnesCount64(words&treeWordBits)
	if words&treeInner != 0 {
		n += 2
	}
	return sizeFor(n)
}
