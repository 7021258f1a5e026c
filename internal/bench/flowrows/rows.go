package flowrows

import (
	"context"

	"github.com/flowtally/flowtally/internal/bench"
)

// The flows of the two instances that each row compares. With the flow that a row adds the larger has as many as a
// table of mlx5 has entries (MLX5_FS_MAX_ENTRIES, mlx5_core): one more would be counted by XDP.
const (
	few  = 1024
	many = 65536 - 1
)

// The interfaces of the two instances that a row about interfaces compares. An instance has at most 1,023, but a bench
// would take long to make as many.
const (
	fewLinks  = 16
	manyLinks = 240
)

// Rows returns the rows of the control plane. bin is the directory of the programs flowtally and
// flowtally-plugin. The rows hold no resource before Row.Prepare. The instances
// that it makes for one row serve the others of its kind until Row.Release.
func Rows(bin string) []bench.Row {
	s := &site{bin: bin, made: make(map[kind]pair)}
	const among = "the same among 1,024 flows"
	var rows []bench.Row
	row := func(name, ours string, k kind, ref, unit string, bound float64, open func(pair) (*bench.Sides, error)) {
		rows = append(rows, bench.Row{
			Name:    name,
			Ours:    ours,
			Ref:     ref,
			Bound:   bound,
			Unit:    unit,
			Release: s.close,
			Prepare: func(ctx context.Context) error { return s.make(ctx, k) },
			Open:    func(context.Context, bench.Env) (*bench.Sides, error) { return open(s.made[k]) },
		})
	}
	for _, of := range []struct {
		kind         kind
		suffix, unit string
		ours         string
		n            int // in one round
	}{
		{embedded, "", "ns of CPU time per call", "in one process", 64},
		{onNIC, ".rdma", "ns of CPU time per call", "that a NIC in software counts", 64},
		{running, ".grpc", "ns of CPU time per call, of all processes", "through the control socket and the plugin", 16}, // a call takes thirty times as long
	} {
		row("flow.add.64k"+of.suffix, "the 65,536th flow added, "+of.ours, of.kind, among, of.unit, 2.0, one{timed: add, undone: remove, n: of.n}.sides)
		row("flow.remove.64k"+of.suffix, "the 65,536th flow removed, "+of.ours, of.kind, among, of.unit, 2.0, one{first: add, timed: remove, n: of.n}.sides)
	}
	row("flow.cli.64k", "one `flowtally flows add` beside 65,535 flows", running, among, "ns of CPU time per command, of all processes", 2.0, one{timed: s.addByCommand, undone: remove, n: 1}.sides)
	// Each of two processes holds every flow, and its collector lets a heap grow to twice what lives: 4. The rest is for
	// what they make of a flow: its rule, its counter, and the entry of the mirror.
	row("flow.memory.64k", "memory of `flowtally run` and its plugin for each flow", running, "the flows in a slice, and their names in a map", "bytes per flow", 8.0, memory)
	// The lock may be held for 50 ms while 20,000 flows change: 0.92 of what reading their file takes on the machine of
	// docs/performance.md. 100,000 entries do not fit into its caches.
	rows = append(rows, s.setRows(10_000, "10k", false, 18, 6, 1.5)...)
	rows = append(rows, s.setRows(100_000, "100k", true, 13, 5, 1.5)...)
	return append(rows, s.hookRows(manyLinks, fewLinks)...)
}
