package classbench

import "fmt"

// Family is a kind of filter set.
type Family int

const (
	ACL Family = iota // access control list of a router
	FW                // firewall
	IPC               // IP chain of a Linux host
)

// Families returns every family.
func Families() []Family { return []Family{ACL, FW, IPC} }

func (f Family) String() string {
	switch f {
	case ACL:
		return "acl"
	case FW:
		return "fw"
	case IPC:
		return "ipc"
	}
	return fmt.Sprintf("family %d", int(f))
}

// class is a class of port ranges (section III of the paper).
type class int

const (
	wc class = iota // every port
	hi              // 1024 to 65535, the user's ports
	lo              // 0 to 1023, the system's ports
	ar              // an arbitrary range
	em              // one port
)

// weighted is a value and its weight.
type weighted[T any] struct {
	value  T
	weight int
}

// portPair is a pair of port classes.
type portPair struct{ src, dst class }

// lengths is a pair of prefix lengths, drawn evenly from two intervals.
type lengths struct{ srcLeast, srcMost, dstLeast, dstMost int }

// parameters is a parameter file of the paper.
type parameters struct {
	protocols []weighted[uint8]
	pairs     []weighted[portPair] // for TCP and UDP; other protocols have no ports
	// For each protocol a single distribution stands in for the paper's one per port class.
	prefixes []weighted[lengths]
	exact    []weighted[uint16] // well-known destination ports; 0: any port
	// branch is the probability that a node of the address trie has two children, for levels 0 to 7, 8 to
	// 15, 16 to 23 and 24 to 31. skew is how much lighter than its sibling a child is: 0 is equal.
	branch [2][4]float64 // source, destination
	skew   [2]float64
	// correlation is the probability that the source follows the destination down one more level.
	correlation float64
}

// wellKnown are destination ports; 0 stands for a random one.
func wellKnown() []weighted[uint16] {
	return []weighted[uint16]{{80, 18}, {443, 14}, {25, 9}, {53, 9}, {22, 5}, {21, 6}, {23, 4}, {110, 4}, {143, 3}, {161, 4}, {123, 4}, {1521, 6}, {3389, 2}, {0, 12}}
}

// parameters returns the distributions of a family. A comment in front of a table names the observation of the
// paper that it has the form of.
func (f Family) parameters() parameters {
	switch f {
	case FW:
		return parameters{
			// Firewalls: half TCP, much UDP, and the widest spread over other protocols.
			protocols: []weighted[uint8]{{tcp, 52}, {udp, 26}, {0, 12}, {icmp, 6}, {esp, 2}, {gre, 2}},
			// Both ports are restricted, the source port too, which access control lists hardly do.
			pairs: []weighted[portPair]{
				{portPair{wc, wc}, 14}, {portPair{wc, em}, 34}, {portPair{wc, ar}, 8}, {portPair{wc, hi}, 6}, {portPair{hi, em}, 10},
				{portPair{em, wc}, 12}, {portPair{em, hi}, 5}, {portPair{em, em}, 5}, {portPair{hi, hi}, 3}, {portPair{ar, wc}, 2}, {portPair{lo, em}, 1},
			},
			// Wildcard addresses on one side or both; hosts and whole sites on the other.
			prefixes: []weighted[lengths]{
				{lengths{0, 0, 28, 32}, 24}, {lengths{28, 32, 0, 0}, 20}, {lengths{0, 0, 14, 26}, 10}, {lengths{14, 26, 0, 0}, 8},
				{lengths{24, 32, 24, 32}, 22}, {lengths{8, 24, 24, 32}, 9}, {lengths{0, 0, 0, 0}, 2}, {lengths{8, 24, 8, 24}, 5},
			},
			exact:  wellKnown(),
			branch: [2][4]float64{{0.15, 0.25, 0.45, 0.60}, {0.10, 0.20, 0.45, 0.65}},
			skew:   [2]float64{0.55, 0.50}, correlation: 0.25,
		}
	case IPC:
		return parameters{
			// IP chains lie between the two: TCP first, UDP a quarter, wildcard protocols.
			protocols: []weighted[uint8]{{tcp, 58}, {udp, 24}, {0, 10}, {icmp, 7}, {gre, 1}},
			pairs: []weighted[portPair]{
				{portPair{wc, wc}, 22}, {portPair{wc, em}, 38}, {portPair{wc, ar}, 9}, {portPair{wc, hi}, 5}, {portPair{em, wc}, 11},
				{portPair{em, em}, 6}, {portPair{hi, em}, 5}, {portPair{ar, ar}, 2}, {portPair{wc, lo}, 2},
			},
			// Pairs of networks and hosts of nearly every length.
			prefixes: []weighted[lengths]{
				{lengths{0, 0, 16, 32}, 18}, {lengths{16, 32, 0, 0}, 8}, {lengths{16, 24, 16, 24}, 16}, {lengths{24, 32, 24, 32}, 28},
				{lengths{8, 24, 26, 32}, 16}, {lengths{26, 32, 8, 24}, 12}, {lengths{0, 8, 8, 16}, 2},
			},
			exact:  wellKnown(),
			branch: [2][4]float64{{0.20, 0.30, 0.45, 0.55}, {0.20, 0.30, 0.50, 0.60}},
			skew:   [2]float64{0.50, 0.45}, correlation: 0.45,
		}
	}
	return parameters{
		// Access control lists: TCP above all, few wildcards.
		protocols: []weighted[uint8]{{tcp, 82}, {udp, 10}, {0, 5}, {icmp, 3}},
		// The source port is a wildcard nearly always; exact and arbitrary destinations.
		pairs: []weighted[portPair]{
			{portPair{wc, em}, 58}, {portPair{wc, ar}, 20}, {portPair{wc, wc}, 14}, {portPair{wc, hi}, 5}, {portPair{wc, lo}, 1}, {portPair{em, wc}, 2},
		},
		// Long destination prefixes; sources from a wildcard to a host.
		prefixes: []weighted[lengths]{
			{lengths{24, 32, 28, 32}, 44}, {lengths{16, 23, 24, 32}, 26}, {lengths{0, 0, 24, 32}, 14}, {lengths{8, 15, 20, 32}, 8},
			{lengths{24, 32, 16, 23}, 6}, {lengths{24, 32, 0, 0}, 2},
		},
		exact:  wellKnown(),
		branch: [2][4]float64{{0.15, 0.25, 0.45, 0.50}, {0.05, 0.20, 0.55, 0.75}},
		skew:   [2]float64{0.60, 0.40}, correlation: 0.35,
	}
}
