package dataplane

import (
	"cmp"
	"context"
)

// QueuePairs controls the queue pairs of a running instance. All methods may be called from any goroutine. Like the methods
// of [Service], they return soon after their ctx ends.
type QueuePairs interface {
	// List returns the configured queue pairs, ordered by name.
	List(ctx context.Context) ([]QueuePairState, error)

	// Connect connects a queue pair to a peer and brings it to RTS. The zero address means the configured peer; if that
	// is a queue pair of this instance, both ends are connected. Without a configured peer it fails with ErrInvalid.
	//
	// A queue pair already connected, or in state ERR, is reset first: its outstanding operations end with errors, and
	// it keeps its number. Connect fails with ErrNotConnected while a device of either end is gone. When the device
	// returns, the instance connects to the configured peer by itself.
	Connect(ctx context.Context, name string, peer QueuePairAddress) error

	// Post lets an operator see that the instance counts. It posts count operations of MessageSize bytes from the buffer
	// of the queue pair, with at most SendDepth outstanding, and waits for their completions. op must be Send, RDMAWrite
	// or RDMARead. Concurrent calls for one queue pair take turns.
	//
	// Post fails with ErrNotConnected if the queue pair is not in RTS. It stops early if the queue pair goes to ERR or
	// ctx ends. Operations outstanding at that moment are still counted, and Posted has those completed by then, if
	// their number is known.
	Post(ctx context.Context, name string, op Operation, count int) (Posted, error)
}

// QueuePair describes a queue pair for the instance to create, own and count. It lives as long as the instance, which
// also owns its buffers.
type QueuePair struct {
	// Name of the queue pair, by the rule for names of flows.
	Name string

	// Device as `rdma dev` lists it: "mlx5_0", "rdmap0s6", "rxe0".
	Device string

	// Port of the device. 0 means 1.
	Port uint8

	// GIDIndex selects the local address from the GID table of the port.
	GIDIndex int

	// Type of service. Empty means [RC].
	Type QueuePairType

	// Counters for its completions. A queue pair needs none if it only serves as the peer of another one.
	Counters []CompletionCounter

	// Source selects how to count. Empty means [SourceAuto]. It is an error if the device lacks the selected source.
	Source CompletionSource

	// SendDepth limits the outstanding send operations. 0 means 256.
	SendDepth int

	// Receives is the number of buffers kept posted for incoming messages. 0 means 256; -1 means none.
	Receives int

	// MessageSize is the size in bytes of a posted message and of a receive buffer. 0 means 4096, or the size of a
	// datagram if the port allows less.
	MessageSize int

	// Peer is the other end, in another process or on another host. Often its address is not known before that end
	// exists; call [QueuePairs].Connect then.
	Peer *QueuePairAddress

	// Connect, instead of Peer, names a queue pair of this instance as the other end, possibly this queue pair itself.
	// For two of type [RC], one must name the other, and both may.
	Connect string
}

// defaultDepth is the default of SendDepth and Receives.
const defaultDepth = 256

// WithDefaults returns a copy with the defaults of empty fields filled in. MessageSize stays 0, because its default
// depends on the port.
func (q QueuePair) WithDefaults() QueuePair {
	q.Port = cmp.Or(q.Port, 1)
	q.Type = cmp.Or(q.Type, RC)
	q.Source = cmp.Or(q.Source, SourceAuto)
	q.SendDepth = cmp.Or(q.SendDepth, defaultDepth)
	q.Receives = cmp.Or(q.Receives, defaultDepth)
	return q
}

// CompletionCounter is a counter of the mirror for completions of one queue pair. Its first value counts completions, its
// second value completions in error.
type CompletionCounter struct {
	// Name in the mirror. No flow and no other counter may have it.
	Name string

	// Operations to count, at least one. Each operation can be in at most one counter of the queue pair.
	Operations []Operation
}

// Operation is a kind of RDMA operation. The words are those of the op mask of ibv_qp_attach_comp_cntr
// (IBV_QP_ATTACH_COMP_CNTR_OP_*).
type Operation string

const (
	Send            Operation = "send"              // sent, with or without immediate data
	Recv            Operation = "recv"              // received into a posted buffer
	RDMARead        Operation = "rdma_read"         // read from the peer
	RemoteRDMARead  Operation = "remote_rdma_read"  // read by the peer: no completion in a queue
	RDMAWrite       Operation = "rdma_write"        // written to the peer
	RemoteRDMAWrite Operation = "remote_rdma_write" // written by the peer: no completion in a queue
)

// Remote reports whether the peer performs the operation. It leaves no completion in a queue on this side, so only
// [SourceCompCntr] can count it.
func (o Operation) Remote() bool { return o == RemoteRDMARead || o == RemoteRDMAWrite }

// Operations returns every operation, in the order of the bits in the op mask.
func Operations() []Operation {
	return []Operation{Send, Recv, RDMARead, RemoteRDMARead, RDMAWrite, RemoteRDMAWrite}
}

// QueuePairType is the transport service of a queue pair. The words are those of verbs.h (IBV_QPT_*).
type QueuePairType string

const (
	RC        QueuePairType = "rc"         // reliable connection, the default: send, rdma_write and rdma_read
	UD        QueuePairType = "ud"         // unreliable datagram: send alone
	SRD       QueuePairType = "srd"        // EFA's scalable reliable datagram: send, rdma_read and rdma_write, as the device has them
	RawPacket QueuePairType = "raw_packet" // Ethernet frames; needs CAP_NET_RAW. Nothing is posted, and it has no other end
)

// Datagrams reports whether each message has its own destination. Such queue pairs are not connected, and several can send
// to one.
func (t QueuePairType) Datagrams() bool { return t == UD || t == SRD }

// RDMA reports whether the type supports rdma_read and rdma_write.
func (t QueuePairType) RDMA() bool { return t == RC || t == SRD }

// QueuePairTypes returns every type, the default first.
func QueuePairTypes() []QueuePairType { return []QueuePairType{RC, UD, SRD, RawPacket} }

// CompletionSource is a way to count the completions of a queue pair.
type CompletionSource string

const (
	// SourceAuto uses the best source of the device.
	SourceAuto CompletionSource = "auto"
	// SourceCompCntr uses completion counters of the device (ibv_create_comp_cntr). If it can, the device writes them
	// directly into the mirror. No other source can count remote operations.
	SourceCompCntr CompletionSource = "comp_cntr"
	// SourceCollapsedCQ reads a completion queue of a single entry that the device keeps overwriting (mlx5, type rc). Only a
	// configuration that names it uses it: after an error, results of operations before it may be lost, and the counter
	// has a discontinuity.
	SourceCollapsedCQ CompletionSource = "collapsed_cq"
	// SourceCQRing reads the entries of a completion queue from its memory (mlx5).
	SourceCQRing CompletionSource = "cq_ring"
	// SourcePollCQ calls ibv_poll_cq. It works on every device.
	SourcePollCQ CompletionSource = "poll_cq"
)

// CompletionSources returns [SourceAuto], the default, followed by the real sources, best first.
func CompletionSources() []CompletionSource {
	return []CompletionSource{SourceAuto, SourceCompCntr, SourceCollapsedCQ, SourceCQRing, SourcePollCQ}
}

// QueuePairState describes a queue pair of a running instance.
type QueuePairState struct {
	Name, Device string
	Type         QueuePairType
	Port         uint8

	// State as in libibverbs, without IBV_QPS_: "RESET", "INIT", "RTR", "RTS", "SQD", "SQE" or "ERR". Empty while the
	// device is gone.
	State string

	// Local is the address to give to the peer. Peer is the zero address until the queue pair is connected.
	Local, Peer QueuePairAddress

	// Source counts the completions now. Its Backend is [flow.RDMA]; its Mode is a [CompletionSource] other than
	// [SourceAuto], or "comp_cntr+external" if the device writes directly into the mirror. It is zero while nobody counts.
	Source Source

	// Counters in the order of the configuration.
	Counters []CountedOperations

	// Rejected has the better sources and why they cannot count. Backend is the [CompletionSource].
	Rejected []Rejection

	// Outstanding is the number of send operations posted and not completed.
	Outstanding int
}

// CountedOperations is a completion counter and its place in the mirror.
type CountedOperations struct {
	CompletionCounter
	Counter Handle
}

// Posted is the result of [QueuePairs].Post: how many operations succeeded, and how many failed.
type Posted struct{ Completed, Errors uint64 }
