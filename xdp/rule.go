package xdp

import (
	"encoding/binary"

	"github.com/flowtally/flowtally/xdp/tree"
)

// Rule counts the packets whose key equals Key under Mask and which no rule of
// a lower Priority, or of equal Priority and lower Order, matches. Key has no
// bit outside Mask.
type Rule struct {
	Key, Mask Key
	// Ports are ranges of the outer and the inner ports. A rule with a range has FlagL4 in Key and Mask of that level,
	// and no bit of the port in Mask.
	Ports    [2]Ports
	Priority uint16
	// Order breaks ties between equal priorities: lower first. Two rules that
	// overlap have different (Priority, Order).
	Order   uint32
	Counter uint32
	Drop    bool
}

// Ports are the ranges of the ports of one level of headers.
type Ports = tree.Ranges

// Range of ports, in host order, both inclusive. The zero Range is every port.
type Range = tree.Range

// rank orders rules: lower wins.
func (r *Rule) rank() uint64 { return uint64(r.Priority)<<32 | uint64(r.Order) }

const noRank = ^uint64(0)

// WinsOver reports whether a packet may match both rules and count for r.
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

// ranged reports whether a rule has a range.
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

// matches is the linear matcher's comparison.
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

// within reports whether a port, in the order of the network, is in a range.
func within(r Range, port []byte) bool {
	n := binary.BigEndian.Uint16(port)
	return r == Range{} || n >= r.First && n <= r.Last
}

// lastOf is the last port of a range, of which the zero value is every port.
func lastOf(r Range) uint16 {
	if r == (Range{}) {
		return anyPort
	}
	return r.Last
}
