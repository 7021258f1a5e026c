package xdp

import (
	"encoding/binary"

	"github.com/flowtally/flowtally/xdp/tree"
)

// Rule matches the packets whose keys equal Key under Mask, and whose ports are in Ports. Of the rules that match a packet,
// the one with the lowest (Priority, Order) counts it. Rules that overlap differ in (Priority, Order).
type Rule struct {
	Key, Mask Key // Key has no bit outside Mask

	// Ports are ranges of the outer and of the inner ports. A rule with a range has FlagL4 in Key and Mask of that level,
	// and no bit of the port in Mask.
	Ports [2]Ports

	Priority uint16
	Order    uint32
	Counter  uint32 // its number
	Drop     bool
}

// Ports are ranges of the source and the destination ports of one level of headers.
type Ports = tree.Ranges

// Range is a range of ports in host order, with both ends. The zero Range is every port.
type Range = tree.Range

// rank is (Priority, Order) as one number. The lowest wins.
func (r *Rule) rank() uint64 { return uint64(r.Priority)<<32 | uint64(r.Order) }

// noRank is above the rank of every rule.
const noRank = ^uint64(0)

// WinsOver reports whether r would count a packet that both rules match, and whether there may be such a packet.
func (r *Rule) WinsOver(o *Rule) bool { return r.rank() < o.rank() && r.Overlaps(o) }

// Overlaps reports whether a packet may match both rules. It does not look at ranges of ports.
func (r *Rule) Overlaps(o *Rule) bool {
	rk, rm, ok, om := r.Key.words(), r.Mask.words(), o.Key.words(), o.Mask.words()
	for w := range rk {
		if (rk[w]^ok[w])&rm[w]&om[w] != 0 {
			return false
		}
	}
	return classesOf(r)&classesOf(o) != 0
}

// ranged reports whether the rule has a range that is not every port.
func (r *Rule) ranged() bool {
	for _, p := range r.Ports {
		for _, at := range []Range{p.Src, p.Dst} {
			if at.First != 0 || lastOf(at) != anyPort {
				return true
			}
		}
	}
	return false
}

// matches reports whether the rule matches a packet. The linear matcher, by which trees are checked, compares so.
func (r *Rule) matches(key *words) bool {
	k, m := r.Key.words(), r.Mask.words()
	for w := range k {
		if key[w]&m[w] != k[w] {
			return false
		}
	}
	for level, p := range r.Ports {
		ports := bytesOf(key[level*levelWords:][:1])
		if !within(p.Src, ports) || !within(p.Dst, ports[2:]) {
			return false
		}
	}
	return true
}

// within reports whether a port, which is in network order, is in a range.
func within(r Range, port []byte) bool {
	n := binary.BigEndian.Uint16(port)
	return r == Range{} || n >= r.First && n <= r.Last
}

// lastOf returns the last port of a range.
func lastOf(r Range) uint16 {
	if r == (Range{}) {
		return anyPort
	}
	return r.Last
}
