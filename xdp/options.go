package xdp

import (
	"log/slog"

	"github.com/flowtally/flowtally/internal/kernel"
)

// Options of a RuleSet. The zero value works: nothing pinned, 65,536 rules.
type Options struct {
	// PinDir is a directory on a bpffs, made when it is missing. Empty means
	// that nothing is pinned and counting ends with the process.
	PinDir string
	// MaxRules is how many rules the tables hold; 0 means 65536, or MostCounters if these are less.
	MaxRules int
	// MaxCounters is how many counters there are; 0 means MaxRules.
	MaxCounters int
	// WorstCost is the most nodes and entries that one packet may touch. Rules that would make a packet touch more are
	// refused with ErrCostly, as a [CostError]. Rules that are there, also from an earlier process, are never refused.
	// 0 means no bound.
	WorstCost int
	// Early are the kinds of device ("veth") on which ModeAuto prefers TCX ingress to native XDP, because they make a
	// socket buffer of each received packet before XDP runs. nil means veth and tuntap.
	Early []string
	// StayDetached: a RuleSet that Release has taken off its hooks takes none. Without it Open ends that.
	StayDetached bool
	// Logger may be nil.
	Logger *slog.Logger
	// Kernel is nil, for the kernel of the host. Tests have others.
	Kernel kernel.Kernel
}

const (
	// ModeAuto is the first that works of native, TCX and generic. On a device that makes socket buffers before XDP runs, as
	// veth and tap do, TCX is the first.
	ModeAuto    Mode = iota
	ModeNative       // in the driver, or not at all
	ModeGeneric      // on socket buffers
	ModeTCX          // TCX ingress: behind XDP, and behind the merging of segments (GRO)
)

const (
	HookIngress Hook = "xdp" // packets that an interface receives, counted by XDP or by TCX
	HookEgress  Hook = "tcx" // packets that it sends
)
