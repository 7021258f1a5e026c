package xdprows

import "github.com/flowtally/flowtally/internal/bench"

// runs of a program in one system call.
const runs = 1 << 17

// Rows returns the rows of the packet path. They hold no resource until opened.
func Rows() []bench.Row {
	return []bench.Row{
		{Name: "xdp.one", Ref: "empty XDP_PASS", Bound: 1.3, Unit: "ns per packet", Open: openOne},
		{Name: "xdp.exact.64k.hot", Ref: "same parser, BPF hash and per-CPU array, above empty", Bound: 0.5,
			Unit: "ns per packet above empty", Open: openHot},
		{Name: "xdp.exact.64k.spread", Ref: "same parser, BPF hash and per-CPU array, above empty", Bound: 0.4,
			Unit: "ns per packet above empty", Open: openSpread},
		{Name: "xdp.smp", Ref: "xdp.one: one CPU alone", Bound: 1.1, Unit: "ns per packet and CPU", Open: openSMP},
	}
}
