package tree

import (
	"encoding/binary"
	"math/bits"
	"sync/atomic"
)

// Node is a word of the memory walked by programs. bpf/tree.h mirrors this file.
//
//	bits 1..2  kind
//	empty      the word is 0: no rule
//	rule       kind 0: bit 0 is 1, 5..27 place of the rule's entry. Bit 3 is used here only (see hidden).
//	cut        kind 1: 3..7 word of the key, 8..13 shift, 16..31 mask, 32..63 base.
//	           The next node is mem[base + (be64(key[word]) >> shift & mask)]. mask is a power of two less 1.
//	list       kind 2: rules of which the first match wins. Rules that overlap are sorted by rank.
//	           5..27 place of the first rule's entry, 28..38 count, 39..63 base / 2. The other rules are at mem[base],
//	           two per word, in memory order. A packet that matches the first rule need not load the list.
//	fork       kind 3: 16..31 count, 32..63 base: count pairs of words, a node and a rank. Only a root can be a fork.
//	           The rank is the lowest among this pair and all later ones. Programs walk the nodes in order, until the
//	           rank of a pair is not below the rank of the rule found so far. The lowest rank found wins.
//
// The place of an entry is its offset in bytes, a multiple of EntryAlign.
//
// be64 reads the 8 bytes of a word as a big-endian number. Then adjacent bits belong together in the packet header, even across
// bytes, and a tree is the same on machines of both byte orders.
//
// mem[class] is the root of a class of keys, for classes 0, 1 and 2. mem[3] is 0 and mem[4] is Version.
type Node uint64

// Kinds of nodes, as Node&KindMask.
const (
	KindMask Node = 6
	KindRule Node = 0
	KindCut  Node = 2
	KindList Node = 4
	KindFork Node = 6
)

const (
	// Version is the version of this format.
	Version = 2
	// Classes is the number of classes of keys: neither IP version, IPv4, IPv6.
	Classes     = 3
	versionWord = Classes + 1
	headerWords = 16

	// MaxBits is the greatest width of a cut's window.
	MaxBits = 16
	// MaxDepth is the greatest number of cuts on the way from the root of a group to a leaf.
	MaxDepth = 16
	// MaxGroups is the greatest number of pairs of a fork.
	MaxGroups = 8
	// MaxList is the greatest count of a list.
	MaxList = 1024
	// EntryAlign is the alignment of entries in bytes.
	EntryAlign = 32
	entryBits  = 1<<28 - EntryAlign
	// NoRank is higher than the rank of every rule.
	NoRank = ^uint64(0)
)

// hidden is a flag in a rule that is a leaf, or in the last rule of a list. It says that this leaf has a rule matching every key that
// comes here, and that rules of a higher rank were left out. Programs ignore it.
const hidden Node = 8

func newCut(word, shift, bits, base int) Node {
	return KindCut | Node(word)<<3 | Node(shift)<<8 | (1<<bits-1)<<16 | Node(base)<<32
}

func newList(first Node, base, count int) Node {
	return KindList | first&entryBits | Node(count)<<28 | Node(base)<<38
}

func newFork(base, count int) Node { return KindFork | Node(count)<<16 | Node(base)<<32 }

// Kind returns the kind of the node.
func (n Node) Kind() Node { return n & KindMask }

// Word returns the word of the key that a cut looks at.
func (n Node) Word() int { return int(n >> 3 & 31) }

// shift returns the position of a cut's window in the word.
func (n Node) shift() int { return int(n >> 8 & 63) }

// Mask returns the mask to apply to the shifted word of a cut.
func (n Node) Mask() uint64 { return uint64(n >> 16 & 0xffff) }

// Count returns the number of rules of a list, or of pairs of a fork.
func (n Node) Count() int {
	if n.Kind() == KindList {
		return int(n >> 28 & 0x7ff)
	}
	return int(n >> 16 & 0xffff)
}

// Base returns the index of the first word of a node's block: the nodes of a cut, the rules of a list after its first, or the pairs of
// a fork.
func (n Node) Base() int {
	if n.Kind() == KindList {
		return int(n >> 39 << 1)
	}
	return int(n >> 32)
}

func (n Node) window() window { return window{n.Word(), n.shift(), bits.Len64(n.Mask())} }

// size returns the number of words from the base on.
func (n Node) size() int {
	switch n.Kind() {
	case KindCut:
		return int(n.Mask()) + 1
	case KindList:
		return n.Count() / 2
	case KindFork:
		return 2 * n.Count()
	}
	return 0
}

// ruleAt returns the i-th rule of a list, or for i = 0 a rule that is a leaf.
func (n Node) ruleAt(mem []uint64, i int) Node {
	if i == 0 {
		return n&entryBits | 1
	}
	var b [8]byte
	binary.NativeEndian.PutUint64(b[:], atomic.LoadUint64(&mem[n.Base()+(i-1)/2]))
	return Node(binary.NativeEndian.Uint32(b[(i-1)%2*4:]))
}

// putRules writes the rules of a list, except the first, to its words.
func putRules(words []uint64, rules []Node) {
	var b [8]byte
	for i := range words {
		binary.NativeEndian.PutUint32(b[:], uint32(rules[2*i]))
		binary.NativeEndian.PutUint32(b[4:], 0)
		if 2*i+1 < len(rules) {
			binary.NativeEndian.PutUint32(b[4:], uint32(rules[2*i+1]))
		}
		words[i] = binary.NativeEndian.Uint64(b[:])
	}
}
