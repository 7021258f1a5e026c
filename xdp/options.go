package xdp

import (
	"log/slog"

	"github.com/flowtally/flowtally/internal/kernel"
)

// Options of Open. The zero value is valid.
type Options struct {
	// PinDir is a directory on a bpffs. Open creates it. If PinDir is empty, nothing is pinned, and counting ends with the
	// process.
	PinDir string

	// MaxRules is the capacity for rules. The default is 65,536, or MostCounters if that is less.
	MaxRules int

	// MaxCounters is the capacity for counters. The default is MaxRules.
	MaxCounters int

	// WorstCost bounds the nodes and entries that one packet may touch. A change that would exceed it fails with a
	// [CostError]. Existing rules are never refused, nor are those of an earlier process. 0 means no bound.
	WorstCost int

	// Early lists the kinds of device ("veth") that allocate a socket buffer for each received packet before XDP runs. On
	// these, ModeAuto prefers TCX ingress to native XDP. The default is veth and tuntap.
	Early []string

	// StayDetached makes Attach return ErrDetached after somebody has called Release with ReleaseOptions.Held. By default,
	// Open ends that state.
	StayDetached bool

	// Logger may be nil.
	Logger *slog.Logger

	// Kernel replaces the kernel of the host in tests. Leave it nil.
	Kernel kernel.Kernel
}
