package tree

import (
	"encoding/binary"
	"fmt"

	"github.com/flowtally/flowtally/internal/lab/classbench"
)

// Bits of the flags in the tests' keys: the last two bytes of word 0, in host order, as package xdp has them.
const (
	flagIPv4 = 1 << 3
	flagIPv6 = 1 << 4
	flagL4   = 1 << 7
)

// word0 makes the first word of a key or of a mask.
func word0(src, dst uint16, proto uint8, flags uint16) uint64 {
	var b [8]byte
	binary.BigEndian.PutUint16(b[0:], src)
	binary.BigEndian.PutUint16(b[2:], dst)
	b[4] = proto
	binary.NativeEndian.PutUint16(b[6:], flags)
	return binary.NativeEndian.Uint64(b[:])
}

// word1 makes the word of the IPv4 addresses.
func word1(src, dst uint32) uint64 {
	var b [8]byte
	binary.BigEndian.PutUint32(b[0:], src)
	binary.BigEndian.PutUint32(b[4:], dst)
	return binary.NativeEndian.Uint64(b[:])
}

var testClass = ClassBits{IPv4: word0(0, 0, 0, flagIPv4), IPv6: word0(0, 0, 0, flagIPv6)}

// ruleOf makes a rule of a generated one, with the entry of place i.
func ruleOf(from *classbench.Rule, i int, rank uint64) Rule {
	flags := uint16(flagIPv4)
	var n Rule
	proto := uint8(0)
	if from.Proto != 0 {
		proto = 0xff
	}
	src, dst := Range(from.SrcPort), Range(from.DstPort)
	if !from.SrcPort.Any() || !from.DstPort.Any() {
		flags |= flagL4
	}
	n.Mask[0], n.Key[0] = word0(0, 0, proto, flags), word0(0, 0, from.Proto, flags)
	n.Mask[1], n.Key[1] = word1(from.Src.Mask(), from.Dst.Mask()), word1(from.Src.Addr, from.Dst.Addr)
	n.Ports[0] = Ranges{src, dst}
	n.Rank = rank
	n.Entry = Entry(i+1)<<5 | 1
	return n
}

// rulesOf makes rules of generated ones, of which the first wins.
func rulesOf(from []classbench.Rule) []Rule {
	out := make([]Rule, len(from))
	for i := range from {
		out[i] = ruleOf(&from[i], i, uint64(i))
	}
	return out
}

// keyOf is the key of a packet.
func keyOf(p classbench.Packet) (k Key) {
	flags := uint16(flagIPv4)
	if p.Proto == 6 || p.Proto == 17 {
		flags |= flagL4
	}
	k[0], k[1] = word0(p.SrcPort, p.DstPort, p.Proto, flags), word1(p.Src, p.Dst)
	return k
}

const seed = 7

// generated are the sets of the measurements.
func generated(sizes ...int) map[string][]classbench.Rule {
	out := map[string][]classbench.Rule{}
	for _, n := range sizes {
		out[fmt.Sprintf("masked24.%d", n)] = classbench.Masked(n, 24, seed)
		out[fmt.Sprintf("masked200.%d", n)] = classbench.Masked(n, 200, seed)
		out[fmt.Sprintf("masked4096.%d", n)] = classbench.Masked(n, 4096, seed)
		out[fmt.Sprintf("ranges.%d", n)] = classbench.Ranges(n, seed)
		for _, f := range classbench.Families() {
			out[fmt.Sprintf("%s.%d", f, n)] = classbench.Generate(f, n, seed)
		}
	}
	return out
}

// plain compares without the builder's view of a rule.
func plain(r *Rule, k *Key) bool {
	for w := range k {
		if k[w]&r.Mask[w] != r.Key[w] {
			return false
		}
	}
	for level, p := range r.Ports {
		v := be64(k[portWords[level]])
		for i, pr := range [2]Range{p.Src, p.Dst} {
			if port := uint16(v >> (48 - 16*i)); pr != (Range{}) && (port < pr.First || port > pr.Last) {
				return false
			}
		}
	}
	return true
}

// best is the entry of the lowest rank that matches.
func best(rules []Rule, k *Key) (entry Entry) {
	rank := NoRank
	for i := range rules {
		if r := &rules[i]; r.Rank < rank && plain(r, k) {
			entry, rank = r.Entry, r.Rank
		}
	}
	return entry
}

// entries compares with the rules of a slice by their entries.
func entries(rules []Rule) Match {
	by := map[Entry]*Rule{}
	for i := range rules {
		by[rules[i].Entry] = &rules[i]
	}
	return func(entry Entry, k *Key) (uint64, bool) {
		r := by[entry]
		return r.Rank, plain(r, k)
	}
}
