package dataplane

import (
	"cmp"
	"io/fs"
	"slices"
	"time"

	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/shm"
)

// Config is the configuration of an instance. The zero value works with at least one interface, one queue pair or
// Backend "sim".
type Config struct {
	// Instance names the mirror, the pins and the control socket:
	// 1 to 32 bytes of [a-z0-9-]. Empty means "default".
	Instance string

	// Backend of flows that name no backend. Empty means [flow.Auto].
	Backend flow.Backend

	// Interfaces on which flows are counted, and patterns of their names.
	Interfaces []Interface

	// Start says how the instance starts where an interface or a flow is refused: [StartStrict], the default, or
	// [StartDegraded].
	Start StartMode

	// Flows present from the start.
	Flows []flow.Flow

	// QueuePairs that the instance makes and counts.
	QueuePairs []QueuePair

	// Words are the names of counters whose values other programs write. [ReservedWords] describes them.
	Words []string

	Mirror MirrorConfig
	Poll   PollConfig
	XDP    XDPConfig
	RDMA   RDMAConfig
}

// StartMode says how an instance starts where an interface or a flow is refused.
type StartMode string

// The modes of a start.
const (
	// StartStrict: the start fails.
	StartStrict StartMode = "strict"
	// StartDegraded: the instance counts the other flows on the other interfaces. A refused interface or flow is
	// the condition [CodeInterfaceRefused] or [CodeFlowRefused] until its cause is gone.
	// A flow that is counted later wins over no other flow of its priority.
	StartDegraded StartMode = "degraded"
)

// MirrorConfig shapes the shared-memory file.
type MirrorConfig struct {
	// Path of the file. Empty means INSTANCE.mirror in shm.Dir of the process that counts.
	Path string

	// Counters bounds the number of counters, also for queue pairs. 0 means no limit: the mirror grows by segments of
	// 4096 while its file system has room.
	Counters int

	// LatencyCounters bounds the number of counters of flows with Latency.
	LatencyCounters int

	// History is the capacity of the history ring in records, rounded up to a
	// power of two. 0 means 65536; -1 means none. A mirror of an earlier run keeps its own.
	History int

	// HistoryPeriod is how often changes are written to the ring. 0 means 1 s.
	HistoryPeriod time.Duration

	// Mode of the file. 0 means 0644.
	Mode fs.FileMode

	// WaitGroup is the group, by name or number, whose members may sleep until a counter changes, on the page of
	// waiters beside the mirror. Empty means no group: only the user of the process that counts, and root. Other
	// processes look once per cycle.
	WaitGroup string

	// LiveMode is the mode of the socket INSTANCE.live beside the mirror, which hands out the memory in which the kernel
	// counts: the right to write is the right to connect. 0 means no socket, or 0660 where LiveGroup is set.
	LiveMode fs.FileMode

	// LiveGroup is the group of that socket, by name or number. Empty means the group of the process that counts.
	LiveGroup string

	// WordsMode is the mode of the socket INSTANCE.words beside the mirror, which hands out reserved words: the right to
	// write is the right to take and to read them. 0 means 0600, or 0660 where WordsGroup is set. The socket is there
	// when words are reserved.
	WordsMode fs.FileMode

	// WordsGroup is the group of that socket, by name or number. Empty means the group of the process that counts.
	WordsGroup string
}

// PollConfig has the period at which the poller reads the backends and publishes to the mirror.
type PollConfig struct {
	// Period of a poll cycle. 0 means 10 ms; at least 100 µs.
	Period time.Duration

	// IdlePeriod is the period after 10 s without a change of a counter and without a woken waiter. 0 means 100 ms, or
	// Period where that is longer; at least Period, and equal to Period means that it does not change.
	IdlePeriod time.Duration

	// Busy polls without pause on CPU, in place of Period.
	Busy bool
	CPU  int
}

// XDPConfig bounds and places the BPF objects.
type XDPConfig struct {
	// PinDir is a directory on a bpffs. Empty means /sys/fs/bpf/flowtally/INSTANCE.
	PinDir string

	// MaxFlows the tables hold, at most [MostFlows]. 0 means 65536.
	MaxFlows int

	// WorstCost is the most nodes and rules that one packet may touch, whoever sends it. New flows that would make it more
	// are refused with ErrCostly; flows that are counted already never are. 0 means [DefaultWorstCost].
	WorstCost int

	// KeepPins leaves programs attached and maps pinned on Close, so that
	// counting goes on until the next start.
	KeepPins bool

	// TCX is the place of flowtally's TCX programs among the TCX programs of an interface: "first" (the default) or "last".
	// An attached program keeps its place.
	TCX string

	// Beside lists the ways to count the received packets of an interface whose XDP hook another program holds, best
	// first. Empty means [Besides].
	Beside []Beside
}

// Limits of a configuration.
const (
	// MostFlows is the greatest MaxFlows: a slot of the tables has 20 bits for its counter.
	MostFlows = 1 << 20
	// DefaultWorstCost is the WorstCost of a configuration that names none. 10,000 rules of a firewall take 400, and
	// 60,000 take 1,700.
	DefaultWorstCost = 2048
	// MostWorstCost is the greatest WorstCost. No set of flows reaches it.
	MostWorstCost = 16384
	// MaxWords is the most reserved words of an instance. The words of its configuration count too.
	MaxWords = 128
)

// Beside is a way to count beside an XDP program of another owner.
type Beside string

// The ways to count beside another program. They are for [ModeAuto]: an interface of [ModeNative] or [ModeGeneric] is
// refused, and one of [ModeTCX] counts by TCX.
const (
	// BesideDispatcher: by XDP, in front of the other programs, as a component of the libxdp dispatcher that holds the hook.
	// It takes CAP_SYS_ADMIN. Another program, and a process without that privilege, leave it to the next way.
	BesideDispatcher Beside = "dispatcher"
	// BesideTCX: by TCX ingress, behind the other program. Packets that it drops, redirects or sends back are not
	// counted.
	BesideTCX Beside = "tcx"
	// BesideRefuse: not at all. The interface is refused, with the condition [CodeInterfaceRefused].
	BesideRefuse Beside = "refuse"
)

// Besides returns the words for [XDPConfig.Beside], in the order that an empty list means.
func Besides() []Beside { return []Beside{BesideDispatcher, BesideTCX, BesideRefuse} }

// CountsBeside reports whether received packets may be counted in a way where another program holds the XDP hook.
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

// RDMAConfig names the libraries of RDMA devices, for flows and for queue pairs, and the rules for counting in flow
// tables.
type RDMAConfig struct {
	// Library is the path of libibverbs. Empty means the loader's libibverbs.so.1.
	Library string

	// MLX5 is the path of libmlx5. Empty means the loader's libmlx5.so.1.
	MLX5 string

	// EFA is the path of libefa, whose completion counters can count in the mirror's own
	// memory. Empty means the loader's libefa.so.1.
	EFA string

	// CommandsPerSecond bounds the firmware commands that reading counters costs, over
	// all devices: of n counters each is read every n/CommandsPerSecond seconds, in
	// bulk where the device can. 0 means 10000.
	CommandsPerSecond int

	// Steal allows flows that take their packets away from the kernel, where a device
	// can count in no other way.
	Steal bool

	// Audit lets XDP count beside the device from the start, so that no packet is lost when the device fails. It
	// costs as much as counting by XDP.
	Audit bool
}

// PinDir is the directory of the instance's pins.
func (c Config) PinDir() string {
	return cmp.Or(c.XDP.PinDir, "/sys/fs/bpf/flowtally/"+cmp.Or(c.Instance, "default"))
}

// MirrorPath is the file of the instance's mirror, as a process of this user writes it.
func (c Config) MirrorPath() string {
	return cmp.Or(c.Mirror.Path, shm.DefaultPath(cmp.Or(c.Instance, "default")))
}
