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

// Mode is how an XDP program is attached.
type Mode uint8

const (
	// ModeAuto is the first that works of native, TCX and generic. On a device that makes socket buffers before XDP runs, as
	// veth and tap do, TCX is the first.
	ModeAuto    Mode = iota
	ModeNative       // in the driver, or not at all
	ModeGeneric      // on socket buffers
	ModeTCX          // TCX ingress: behind XDP, and behind the merging of segments (GRO)
)

// AttachOptions says which hooks of an interface to take.
type AttachOptions struct {
	Mode    Mode // of the ingress hook
	Ingress bool // XDP, or TCX
	Egress  bool // TCX
	// Last puts a TCX program behind those that are there, in place of before them. A hook
	// that is held keeps its place.
	Last bool
	// Beside lets ModeAuto count by TCX an interface whose XDP hook another program holds. Without it that is ErrBusy.
	Beside bool
	// Dispatcher lets ModeAuto take a place in the libxdp dispatcher that holds the XDP hook. It takes CAP_SYS_ADMIN and
	// Options.PinDir; without them, and where that fails, Beside applies.
	Dispatcher bool
	// GenericBesideSCTP attaches in generic mode even where Attachment.HarmsSCTP is true. Without it, Attach refuses the mode
	// there while the kernel has SCTP.
	GenericBesideSCTP bool
	// Retake lets ModeAuto move an interface from TCX to a libxdp dispatcher or to native XDP. It stays where it is if that fails.
	Retake bool
}

// Hook is a place in the kernel where a program is attached.
type Hook string

const (
	HookIngress Hook = "xdp" // packets that an interface receives, counted by XDP or by TCX
	HookEgress  Hook = "tcx" // packets that it sends
)

// Attachment is one program on one hook.
type Attachment struct {
	Interface string
	Index     int // ifindex
	Port      uint16
	Hook      Hook
	Mode      string // "native", "generic", "tcx" or "dispatcher"
	Layer3    bool   // frames begin with IP: there is no Ethernet header and no VLAN tag
	Adopted   bool   // it was attached before this process
	Fresh     bool   // this call of Attach attached it, and did not move it from another mode
	// HarmsSCTP: the mode is generic, and the device receives buffers of this host. Generic XDP makes each buffer linear, for
	// any program. A linear buffer of SCTP has no valid segments, and Linux 6.12 to 7.3 crashes on forwarding it.
	HarmsSCTP bool
	// Rejected holds the reason of every mode that was tried before Mode, or of a Retake that failed.
	Rejected []error
}

// Stats is the state of the tables.
type Stats struct {
	Rules       int // added
	MaxRules    int
	Tuples      int // distinct masks
	Hashed      int // of them, in the hash table; the rules of the others are in trees
	Built       int // how often all trees were built
	Counters    int // allocated
	MaxCounters int
	Programs    uint64 // how often programs were loaded
	Insns       uint32 // that the verifier processed for the last program
}
