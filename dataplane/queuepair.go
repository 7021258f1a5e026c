package dataplane

import (
	"cmp"
	"context"
)

// QueuePairs are the queue pairs of a running instance. All methods may be called from any goroutine.
// They return soon after their ctx has ended, as the methods of [Service] do.
type QueuePairs interface {
	// List returns the configured queue pairs, ordered by name.
	List(ctx context.Context) ([]QueuePairState, error)

	// Connect tells a queue pair its peer and brings it to RTS. The zero address stands for the
	// peer that the configuration names; Connect returns ErrInvalid if it names none. If that peer is
	// a queue pair of this instance, Connect connects both. A queue pair that is
	// connected, or in state ERR, is connected anew and keeps its number: its outstanding
	// operations end with errors first. Connect returns ErrNotConnected while either device is
	// gone; the instance makes the configured connection when the device is back.
	Connect(ctx context.Context, name string, peer QueuePairAddress) error

	// Post posts count operations of MessageSize bytes from the queue pair's own buffer,
	// at most SendDepth at a time, and waits until all have completed, with or without
	// an error: the operator's proof that the instance counts. op is Send, RDMAWrite or RDMARead.
	// Calls on one queue pair take turns. Post returns ErrNotConnected if the queue pair is not
	// in RTS. It stops posting when the queue pair goes to ERR or ctx ends; operations that are
	// outstanding then are still counted. Beside an error, and when ctx ends, Posted holds the
	// operations that had completed, if their number is known.
	Post(ctx context.Context, name string, op Operation, count int) (Posted, error)
}

// QueuePair is a queue pair that the instance makes, owns and counts. It lives as
// long as the instance. Its buffers are memory of the instance.
type QueuePair struct {
	// Name among the queue pairs of the instance, with the letters of a flow's name.
	Name string

	// Device as `rdma dev` lists it: "mlx5_0", "rdmap0s6", "rxe0".
	Device string

	// Port of the device. 0 means 1.
	Port uint8

	// GIDIndex is the row of the port's GID table that is the queue pair's own address.
	GIDIndex int

	// Type of its service. Empty means [RC].
	Type QueuePairType

	// Counters that its completions feed. A queue pair without counters is a peer for another one.
	Counters []CompletionCounter

	// Source that is to count. Empty means [SourceAuto]; any other is refused where the
	// device has it not.
	Source CompletionSource

	// SendDepth bounds the send operations that are outstanding at a time. 0 means 256.
	SendDepth int

	// Receives is the number of buffers that are kept posted for messages that arrive. 0 means 256, -1 none.
	Receives int

	// MessageSize is the size in bytes of a message that is posted, and of a buffer for
	// one that arrives. 0 means 4096, or the size of the port's datagrams if that is less.
	MessageSize int

	// Peer is the other end, in another process or on another host. [QueuePairs].Connect
	// can set it later, because an address is known only when its queue pair exists.
	Peer *QueuePairAddress

	// Connect names a queue pair of this instance as the other end, in place of Peer;
	// it may be the queue pair itself. Of two queue pairs of type [RC] it is enough that one
	// names the other.
	Connect string
}

// defaultDepth is the default of SendDepth and Receives.
const defaultDepth = 256

// WithDefaults returns the queue pair with the defaults of empty fields. MessageSize stays
// 0, because its default depends on the port. Receives stays -1 for a queue pair without buffers.
func (q QueuePair) WithDefaults() QueuePair {
	q.Port = cmp.Or(q.Port, 1)
	q.Type = cmp.Or(q.Type, RC)
	q.Source = cmp.Or(q.Source, SourceAuto)
	q.SendDepth = cmp.Or(q.SendDepth, defaultDepth)
	q.Receives = cmp.Or(q.Receives, defaultDepth)
	return q
}

// CompletionCounter is a counter of the mirror that a queue pair feeds: its first value
// is the number of completions, its second the number of completions in error. One counter
// belongs to one queue pair.
type CompletionCounter struct {
	// Name in the mirror, in one name space with the flows.
	Name string

	// Operations that are counted, at least one. An operation feeds at most one counter
	// of its queue pair.
	Operations []Operation
}

// Operation is a kind of operation whose completions can be counted, by the words of
// ibv_qp_attach_comp_cntr's op mask (IBV_QP_ATTACH_COMP_CNTR_OP_*).
type Operation string

const (
	Send            Operation = "send"              // sent, with or without immediate data
	Recv            Operation = "recv"              // received into a posted buffer
	RDMARead        Operation = "rdma_read"         // read from the peer
	RemoteRDMARead  Operation = "remote_rdma_read"  // read by the peer: no completion in a queue
	RDMAWrite       Operation = "rdma_write"        // written to the peer
	RemoteRDMAWrite Operation = "remote_rdma_write" // written by the peer: no completion in a queue
)

// Remote reports whether the operation is the peer's and leaves no completion in a queue of this end, so that only a
// completion counter of the device can count it.
func (o Operation) Remote() bool { return o == RemoteRDMARead || o == RemoteRDMAWrite }

// Operations returns every operation, in the order of the bits of the op mask.
func Operations() []Operation {
	return []Operation{Send, Recv, RDMARead, RemoteRDMARead, RDMAWrite, RemoteRDMAWrite}
}

// QueuePairType is a queue pair's service, by the words of verbs.h (IBV_QPT_*).
type QueuePairType string

const (
	RC        QueuePairType = "rc"         // reliable connection, the default: send, rdma_write and rdma_read
	UD        QueuePairType = "ud"         // unreliable datagram: send alone
	SRD       QueuePairType = "srd"        // EFA's scalable reliable datagram: send, rdma_read and rdma_write, as the device has them
	RawPacket QueuePairType = "raw_packet" // Ethernet frames; needs CAP_NET_RAW. Nothing is posted, and it has no other end
)

// Datagrams reports whether every message names its destination, so that a queue pair of that type has no connection and
// several can send to one.
func (t QueuePairType) Datagrams() bool { return t == UD || t == SRD }

// RDMA reports whether a queue pair of that type has rdma_read and rdma_write, and a buffer that its peer reads and writes.
func (t QueuePairType) RDMA() bool { return t == RC || t == SRD }

// QueuePairTypes returns every type of a queue pair, the default first.
func QueuePairTypes() []QueuePairType { return []QueuePairType{RC, UD, SRD, RawPacket} }

// CompletionSource counts the completions of a queue pair.
type CompletionSource string

const (
	// SourceAuto is the best source that the device has.
	SourceAuto CompletionSource = "auto"
	// SourceCompCntr: completion counters of the device (ibv_create_comp_cntr), in memory
	// of the mirror where the device can write it. Alone in counting remote operations.
	SourceCompCntr CompletionSource = "comp_cntr"
	// SourceCollapsedCQ: one entry of a completion queue that the device overwrites (mlx5).
	// Always refused for now, with the reason: ibv_create_qp takes no such queue. [SourceCQRing] is in its place.
	SourceCollapsedCQ CompletionSource = "collapsed_cq"
	// SourceCQRing: the entries of a completion queue, read from its memory (mlx5).
	SourceCQRing CompletionSource = "cq_ring"
	// SourcePollCQ: ibv_poll_cq, which every device has.
	SourcePollCQ CompletionSource = "poll_cq"
)

// CompletionSources returns [SourceAuto], the default, then the sources, best first.
func CompletionSources() []CompletionSource {
	return []CompletionSource{SourceAuto, SourceCompCntr, SourceCollapsedCQ, SourceCQRing, SourcePollCQ}
}

// QueuePairState describes a queue pair of a running instance.
type QueuePairState struct {
	Name, Device string
	Type         QueuePairType
	Port         uint8

	// State as libibverbs names it, without IBV_QPS_: "RESET", "INIT", "RTR", "RTS", "SQD",
	// "SQE" or "ERR". Empty while the device is gone.
	State string

	// Local is the address that the peer must be told. Peer is the peer's address, or the zero
	// address until the queue pair is connected.
	Local, Peer QueuePairAddress

	// Source counts its completions now: Backend "rdma", Mode the word of a
	// [CompletionSource] other than [SourceAuto], or "comp_cntr+external" where the device
	// writes into the mirror. Zero while nothing does.
	Source Source

	// Counters in the order of the configuration.
	Counters []CountedOperations

	// Rejected is why the better sources do not count: Backend is the source's word.
	Rejected []Rejection

	// Outstanding is the number of operations that were posted and have not completed,
	// without the posted receives.
	Outstanding int
}

// CountedOperations is a completion counter and its place in the mirror.
type CountedOperations struct {
	CompletionCounter
	Counter Handle
}

// Posted is how operations that were posted ended. The two add up to their number.
type Posted struct{ Completed, Errors uint64 }
