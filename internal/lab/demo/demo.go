package demo

import (
	"context"
	"log/slog"
	"time"

	"github.com/flowtally/flowtally/dataplane"
)

// Mode says where the XDP programs run.
type Mode string

const (
	Native  Mode = "native"
	Generic Mode = "generic"
	Both    Mode = "both" // on an interface each
)

// modes are the XDP modes that m stands for, each on an interface of its own.
func (m Mode) modes() []Mode {
	if m == Both || m == "" {
		return []Mode{Native, Generic}
	}
	return []Mode{m}
}

// RDMAInterface is the interface that is counted on with Backend "rdma".
const RDMAInterface = "ft-rdma"

// Options of Run. Launch is required.
type Options struct {
	// For is how long traffic is sent at full speed; 0 means 5 s.
	For time.Duration
	// Rate bounds each sender, in frames per second; 0 means as fast as it goes.
	Rate int
	// Mode of the XDP hook. Empty means Both. Not used with Backend "rdma".
	Mode Mode
	// Backend that counts: "xdp" (also when empty), or "rdma" over RDMA's libraries,
	// with XDP counting the same traffic beside it.
	Backend string
	// Env preloads the uverbs kernel in the instance that counts on the NIC, with Backend "rdma". It is not needed
	// where the environment of this process does so.
	Env []string
	// Device is the name of the NIC in sysfs; empty means "mlx5_0". Its netdev is RDMAInterface.
	Device string
	// Verbs counts with Backend "rdma" by verbs in place of DevX, and leaves out the flows that verbs cannot express.
	Verbs bool
	// Instance names the mirror and the pins; empty means a unique name.
	Instance string
	// Launch starts an instance in this process's network namespace, with env
	// added to its environment. ctx bounds the launch alone.
	Launch func(ctx context.Context, cfg dataplane.Config, env []string) (dataplane.Service, error)
	// Progress is called some times a second while traffic flows, from one
	// goroutine. Optional.
	Progress func(Progress)
	// Logger; nil discards.
	Logger *slog.Logger
}

// Progress is the state of a demo that runs.
type Progress struct {
	Phase   string // the present step, for a person
	Mirror  string // path of the mirror
	Elapsed time.Duration
	Flows   []Count
}

// Count compares one flow: the sent packets and bytes, and the counts in the mirror. While
// traffic flows the second lags the first by a poll cycle.
type Count struct {
	Name        string `json:"name"`
	SentPackets uint64 `json:"sent_packets"`
	Packets     uint64 `json:"packets"`
	SentBytes   uint64 `json:"sent_bytes"`
	Bytes       uint64 `json:"bytes"`
	// The counts of XDP for the same traffic, where another backend is shown.
	XDPPackets *uint64 `json:"xdp_packets,omitempty"`
	XDPBytes   *uint64 `json:"xdp_bytes,omitempty"`
	// Source that counted it, as the mirror names it.
	Source string `json:"source,omitempty"`
}

// Exact reports whether frames were sent and all of them were counted, by XDP
// beside too where it counts.
func (c Count) Exact() bool {
	return c.SentPackets > 0 && c.Packets == c.SentPackets && c.Bytes == c.SentBytes &&
		(c.XDPPackets == nil || *c.XDPPackets == c.SentPackets && *c.XDPBytes == c.SentBytes)
}

// Report is the outcome, as it is printed.
type Report struct {
	Schema int     `json:"schema"`
	Flows  []Count `json:"flows"`
	Exact  bool    `json:"exact"` // every flow is
	// Backend and SoftwareNIC are of a demo with Backend "rdma": its NIC is a program.
	Backend     string `json:"backend,omitempty"`
	SoftwareNIC bool   `json:"software_nic,omitempty"`
}

func report(counts []Count) Report {
	r := Report{Schema: 1, Flows: counts, Exact: len(counts) > 0}
	for _, c := range counts {
		r.Exact = r.Exact && c.Exact()
	}
	return r
}
