package xdp

import (
	"log/slog"

	"github.com/flowtally/flowtally/internal/kernel"
)

// Options of Open. The zero value works: 65,536 rules, and nothing pinned.
type Options struct {
	// PinDir is a directory on a bpffs. Open makes it. Empty: nothing is pinned, and counting ends with the process.
	PinDir string

	// MaxRules is the number of rules that fit. 0: 65,536, or MostCounters if that is less.
	MaxRules int

	// MaxCounters is the number of counters that fit. 0: MaxRules.
	MaxCounters int

	// WorstCost is the most nodes and entries that one packet may touch. Open, and each change, refuses new rules that
	// exceed it, with a [CostError]. It never refuses rules that exist, also those of an earlier process. 0: no bound.
	WorstCost int

	// Early lists the kinds of device ("veth") that make a socket buffer of each received packet before XDP runs. There
	// ModeAuto prefers TCX ingress to native XDP. nil: veth and tuntap.
	Early []string

	// StayDetached keeps the mark of Release, so that Attach returns ErrDetached. Without it Open removes the mark.
	StayDetached bool

	// Logger may be nil.
	Logger *slog.Logger

	// Kernel is nil for the kernel of the host. Tests have others.
	Kernel kernel.Kernel
}
