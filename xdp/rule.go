package xdp

import (
	"encoding/binary"

	"github.com/flowtally/flowtally/xdp/tree"
)

// Rule matches a packet if the key of the packet equals Key under Mask, and its ports are in Ports. If several rules match, the one
// with the lowest (Priority, Order) counts the packet. Overlapping rules must differ in (Priority, Order).
type Rule struct {
	Key, Mask Key // Key must not have bits outside of Mask

	// Ports are ranges for the outer and for the inner headers. At a level with a range, Key and Mask must have FlagL4, and
	// Mask must not have a bit of that port.
	Ports [2]Ports

	Priority uint16
	Order    uint32
	Counter  uint32 // Counter.ID
	Drop     bool
}

// Ports are ranges of source and destination ports, at one level of headers.
type Ports = tree.Ranges

// Range is a range of ports in host order, including both ends. The zero Range contains every port.
type Range = tree.Range

// rank returns (Priority, Order) as one number. The lowest rank wins.
func (r *Rule) rank() uint64 { return uint64(r.Priority)<<32 | uint64(r.Order) }

// noRank is higher than the rank of every rule.
const noRank = ^uint64(0)

// WinsOver reports whether some packet may match both rules, and r would count it.
func (r *Rule) WinsOver(o *Rule) bool { return r.rank() < o.rank() && r.Overlaps(o) }

// Overlaps reports whether some packet may match both rules. It ignores ranges of ports, so it may report an overlap where there is
// none.
func (r *Rule) Overlaps(o *Rule) bool {
	rk, rm, ok, om := r.Key.words(), r.Mask.words(), o.Key.words(), o.Mask.words()
	for w := range rk {
		if (rk[w]^ok[w])&rm[w]&om[w] != 0 {
			return false
		}
	}
	return classesOf(r)&classesOf(o) != 0
}

// ranged reports whether the rule has a range that excludes some port.
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

// matches reports whether the rule matches a packet. It defines the meaning of Rule for forest.check.
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

// within reports whether a port in network order is in a range.
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
