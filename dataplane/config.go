package dataplane

import (
	"cmp"
	"io/fs"
	"slices"
	"time"

	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/shm"
)

// Config is the configuration of an instance. The zero value of every field is a usable default. An instance must have
// something to count on: at least one interface, one queue pair, one name in Words, or Backend [flow.Sim].
type Config struct {
	// Instance names the mirror, the pins and the control socket. Two instances on one host need two names:
	// 1 to 32 bytes of [a-z0-9-]. Empty means "default".
	Instance string

	// Backend of the flows without a backend of their own. Empty means [flow.Auto].
	Backend flow.Backend

	// Interfaces to count on, by name or by pattern.
	Interfaces []Interface

	// Start decides whether one interface or flow that cannot be counted fails the whole start. Empty means
	// [StartStrict].
	Start StartMode

	// Sets of addresses that flows name.
	Sets []Set

	// Flows to count from the start. [Service.AddFlows] and [Service.SetFlows] change them later.
	Flows []flow.Flow

	// QueuePairs of RDMA devices that the instance creates, owns and counts.
	QueuePairs []QueuePair

	// Words names counters whose values other programs write. See [ReservedWords].
	Words []string

	Mirror MirrorConfig
	Poll   PollConfig
	XDP    XDPConfig
	RDMA   RDMAConfig
}

// StartMode says what a start does about an interface or a flow that cannot be counted.
type StartMode string

// The modes of a start.
const (
	// StartStrict fails the start.
	StartStrict StartMode = "strict"
	// StartDegraded starts with the other interfaces and flows. The condition [CodeInterfaceRefused] or
	// [CodeFlowRefused] reports the rest, and ends when the cause goes away and counting begins. A flow that is counted
	// late comes after the other flows of its priority.
	StartDegraded StartMode = "degraded"
)

// MirrorConfig shapes the shared-memory file.
type MirrorConfig struct {
	// Path of the file. Empty means INSTANCE.mirror in the directory that shm.Dir returns to the counting process.
	Path string

	// Counters limits the number of counters of flows and queue pairs together. 0 means no limit: the mirror grows by
	// segments of 4096 counters until its file system is full.
	Counters int

	// LatencyCounters limits the number of counters for flows with Latency. 0 means no limit.
	LatencyCounters int

	// History is the capacity of the history ring in records, rounded up to a power of two. 0 means 65536; -1 means no
	// history. A mirror left by an earlier run keeps its capacity.
	History int

	// HistoryPeriod is how often changes are written to the ring. 0 means 1 s.
	HistoryPeriod time.Duration

	// Mode of the file. 0 means 0644.
	Mode fs.FileMode

	// WaitGroup is the group, by name or number, whose members may sleep until a counter changes. Empty means no
	// group: only root and the user of the counting process may. Every other process polls once per cycle.
	WaitGroup string

	// LiveMode is the mode of the socket INSTANCE.live beside the mirror. A process with write permission may connect
	// and gets the memory in which the kernel counts, read-only. 0 means no socket, or 0660 if LiveGroup is set.
	LiveMode fs.FileMode

	// LiveGroup is the group of that socket, by name or number. Empty means the group of the counting process.
	LiveGroup string

	// WordsMode is the mode of the socket INSTANCE.words beside the mirror. A process with write permission may take
	// reserved words and read them. 0 means 0600, or 0660 if WordsGroup is set. The socket exists only while words are
	// reserved.
	WordsMode fs.FileMode

	// WordsGroup is the group of that socket, by name or number. Empty means the group of the counting process.
	WordsGroup string
}

// The poll periods of a configuration that names none.
const (
	DefaultPollPeriod = 10 * time.Millisecond
	DefaultIdlePeriod = 100 * time.Millisecond
)

// PollConfig says how often the poller reads the backends and publishes the values to the mirror.
type PollConfig struct {
	// Period of a poll cycle, at least 100 µs. 0 means [DefaultPollPeriod].
	Period time.Duration

	// IdlePeriod replaces Period after 10 s in which no counter changed and no waiter was woken. It must not be shorter
	// than Period; set both to the same value to poll at one rate. 0 means [DefaultIdlePeriod], or Period if that is
	// longer.
	IdlePeriod time.Duration

	// Busy polls without pause on CPU and ignores Period.
	Busy bool
	CPU  int
}

// XDPConfig bounds and places the BPF objects.
type XDPConfig struct {
	// PinDir is a directory on a bpffs. Empty means /sys/fs/bpf/flowtally/INSTANCE.
	PinDir string

	// MaxFlows is the capacity of the tables in flows, at most [MostFlows]. 0 means 65536.
	MaxFlows int

	// WorstCost limits how many nodes and rules a packet can make XDP look at, whoever sends it. Adding flows beyond
	// the limit fails with ErrCostly. Flows already counted stay. 0 means [DefaultWorstCost].
	WorstCost int

	// KeepPins leaves programs attached and maps pinned on Close: counting, and dropping, continues until the next
	// start.
	KeepPins bool

	// TCX places a new TCX program before ("first", the default) or after ("last") the others of its interface. Programs
	// already attached do not move.
	TCX string

	// Beside lists, best first, the ways to count received packets if another program occupies the XDP hook of the
	// interface. Empty means [Besides].
	Beside []Beside
}

// Limits of a configuration.
const (
	// MostFlows is the largest MaxFlows. Table slots store the number of a counter in 20 bits.
	MostFlows = 1 << 20
	// DefaultWorstCost is the default of WorstCost. For scale: 10,000 firewall rules cost 400, and 60,000 cost 1,700.
	DefaultWorstCost = 2048
	// MostWorstCost is the largest WorstCost. No set of flows costs as much.
	MostWorstCost = 16384
	// MostWords is how many reserved words an instance can have, those of its configuration included.
	MostWords = 128
)

// Beside is a way to count received packets on an interface whose XDP hook another program occupies.
type Beside string

// The ways to count beside another program. They apply to [ModeAuto] alone: in [ModeNative] and [ModeGeneric] an occupied
// hook always raises [CodeInterfaceRefused], and [ModeTCX] does not need the hook.
const (
	// BesideDispatcher counts by XDP, before the other programs, as a component of their libxdp dispatcher. It needs
	// CAP_SYS_ADMIN. Without that privilege, or if the hook has no dispatcher, the next way is tried.
	BesideDispatcher Beside = "dispatcher"
	// BesideTCX counts by TCX ingress, after the other program. It misses the packets that program drops, redirects or
	// sends back.
	BesideTCX Beside = "tcx"
	// BesideRefuse does not count on the interface and raises [CodeInterfaceRefused].
	BesideRefuse Beside = "refuse"
)

// Besides returns every way, best first: the default of [XDPConfig.Beside].
func Besides() []Beside { return []Beside{BesideDispatcher, BesideTCX, BesideRefuse} }

// CountsBeside reports whether the configuration allows this way to count beside another program. Ways listed after
// [BesideRefuse] are never tried.
func (c XDPConfig) CountsBeside(by Beside) bool {
	list := c.Beside
	if len(list) == 0 {
		list = Besides()
	}

	if i := slices.Index(list, BesideRefuse); i >= 0 {
		list = list[:i]
	}
	return slices.Contains(list, by)
}

// RDMAConfig has the libraries of RDMA devices, and limits for counting in their flow tables.
type RDMAConfig struct {
	// Library is the path of libibverbs. Empty means the loader's libibverbs.so.1.
	Library string

	// MLX5 is the path of libmlx5. Empty means the loader's libmlx5.so.1.
	MLX5 string

	// EFA is the path of libefa. Its completion counters can count directly in the mirror. Empty means the loader's
	// libefa.so.1.
	EFA string

	// CommandsPerSecond limits the firmware commands for reading counters, over all devices together. Each of n counters
	// is then read every n/CommandsPerSecond seconds, or more often on a device that reads in bulk. 0 means 10000.
	CommandsPerSecond int

	// Steal allows a device to count a flow by taking its packets away from the kernel, if it has no other way.
	Steal bool

	// ByteBasis says which bytes of a frame the flow counters of the devices count. flowtally selftest measures it: no
	// document of a vendor tells. It is the same for all devices: with cards that count in different ways, leave it
	// unknown. Empty means [BasisUnknown].
	ByteBasis ByteBasis

	// Audit makes XDP count the same flows beside the device from the start, at the full cost of XDP. If the device
	// fails, XDP takes over without missing a packet.
	Audit bool
}

// ByteBasis says which bytes of a frame count. The mirror has it for each counter.
type ByteBasis string

const (
	BasisL2            ByteBasis = "l2"              // the frame with its VLAN tags, without FCS: as XDP counts
	BasisL2Untagged    ByteBasis = "l2-untagged"     // without VLAN tag, without FCS
	BasisL2FCS         ByteBasis = "l2-fcs"          // with VLAN tags and FCS
	BasisL2FCSUntagged ByteBasis = "l2-fcs-untagged" // without VLAN tag, with FCS
	BasisL3            ByteBasis = "l3"              // from the IP header on
	BasisUnknown       ByteBasis = "unknown"         // nobody has measured it
)

// ByteBases returns every basis.
func ByteBases() []ByteBasis {
	return []ByteBasis{BasisL2, BasisL2Untagged, BasisL2FCS, BasisL2FCSUntagged, BasisL3, BasisUnknown}
}

// PinDir returns the directory of the instance's pins.
func (c Config) PinDir() string {
	return cmp.Or(c.XDP.PinDir, "/sys/fs/bpf/flowtally/"+cmp.Or(c.Instance, "default"))
}

// MirrorPath returns the path of the instance's mirror if a process of the current user counts.
func (c Config) MirrorPath() string {
	return cmp.Or(c.Mirror.Path, shm.DefaultPath(cmp.Or(c.Instance, "default")))
}
