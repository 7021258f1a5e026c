package xdp

import "github.com/flowtally/flowtally/xdp/tree"

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

// Counter is a slot of the counters' map and its count since it was given to its owner.
type Counter struct {
	ID     uint32
	Cookie uint64 // random, new with every allocation: names this run of counting
	// Adopted says that the counter was there already, in this process or from
	// before a restart: its value goes on.
	Adopted bool
}

// CounterInfo is an allocated counter and its owner.
type CounterInfo struct {
	Counter
	Owner string
}

// Pair is the value of a counter: the bytes of exactly these packets, layer 2 without FCS.
type Pair struct{ Packets, Bytes uint64 }

// Row is the value of a counter and the time of its sample, in the layout of a row of a mirror.
type Row struct {
	Packets, Bytes uint64
	SampledAt      int64 // ns of CLOCK_MONOTONIC
}
