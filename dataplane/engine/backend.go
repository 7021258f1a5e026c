package engine

import (
	"cmp"
	"context"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/shm"
	"github.com/flowtally/flowtally/xdp"
)

// Pair is what a source has counted of one flow: whole packets, and the bytes
// of exactly those packets; of a completion counter, completions and errors. It is xdp's, so
// that its counters are read straight into it.
type Pair = xdp.Pair

func add(a, b Pair) Pair { return Pair{Packets: a.Packets + b.Packets, Bytes: a.Bytes + b.Bytes} }
func sub(a, b Pair) Pair { return Pair{Packets: a.Packets - b.Packets, Bytes: a.Bytes - b.Bytes} }

// Installed is a flow that a backend counts.
type Installed struct {
	// ID names the counter in Backend.Read.
	ID uint32
	// Cookie names this run of the source: as long as it is the same, even over
	// a restart of this process, the counter has gone on without a gap.
	Cookie uint64
	Source dataplane.Source
	Basis  string // what Bytes are: "l2" (without FCS), "l3", "payload", "unknown"
	// Adopted: the counter was there already; it may stand at more than 0.
	Adopted bool
	// Gap: packets may have passed uncounted since the counter began, though its
	// cookie is the same.
	Gap bool
	// Takes: the packets that it counts reach no backend behind it (drop, steal).
	Takes bool
}

// source is what the plan reads counters from, each by the ID that the source gave it: a
// backend, or the queue pairs.
type source interface {
	// Name is the word that the configuration uses.
	Name() string
	// Read fills dst[i] with counter ids[i]. It allocates nothing, makes no
	// system call and reads each pair whole.
	Read(ids []uint32, dst []Pair) error
}

// rowed is a source that fills rows of a block by itself.
type rowed interface {
	source
	// ReadRows fills dst with the counters from first on, sampled at at. As Read it allocates
	// nothing and makes no system call. On error a row is whole: as it was, or read.
	ReadRows(first uint32, dst []shm.Value, at int64) error
}

// timed is a source whose values are sampled one by one, as a device's are: each
// read is a command of its own.
type timed interface {
	source
	// ReadTimed fills dst[i] with counter ids[i] as it stood at at[i], on the clock of
	// shm.Now. at[i] is 0 for a counter that was not sampled yet; dst[i] then says nothing.
	// Like Read it allocates nothing and makes no system call. A counter that was removed
	// is read as it stood at the very end, until its ID is given to another.
	ReadTimed(ids []uint32, dst []Pair, at []int64) error
}

// Backend counts flows. Install, Remove and Close are called by one goroutine
// at a time; Read is called by the poller's goroutine at any time between
// Install and Remove of the counters that it names, also while either runs for others.
type Backend interface {
	source
	// Install counts all of flows or none; the answer is in the order of flows. A
	// flow that was counted by a process that died is found again by its
	// identity, and its counter goes on.
	Install(ctx context.Context, flows []Placed) ([]Installed, error)
	// Remove stops counting all of flows, or none with an error. Unknown flows are ignored.
	Remove(ctx context.Context, flows []Placed) error
	// Settle drops what a dead process left and nobody asked for since. It is called once,
	// after the first Install.
	Settle(ctx context.Context) error
	// Source says what counts an installed flow now: it may change with the links.
	Source(f Placed) dataplane.Source
	// Conditions lists what is not as it should be.
	Conditions() []dataplane.Condition
	// Changed signals that Conditions or sources may have changed.
	Changed() <-chan struct{}
	// Close stops counting, or leaves the kernel counting where keep is true and
	// the backend can. Idempotent.
	Close(keep bool) error
}

// Placed is a flow with its place in the order of addition, which breaks ties
// between equal priorities. The places of one process are not those of the next, so a
// backend that outlives it may keep its own, in the same order.
type Placed struct {
	flow.Flow
	Order uint32
}

// wins compares flows: the lower priority number, then the one added first.
func wins(a, b Placed) int {
	return cmp.Or(cmp.Compare(a.Priority, b.Priority), cmp.Compare(a.Order, b.Order))
}

// placer is a backend that counts some flows in place of the one behind it: an
// overlay. Its methods are called as Install is.
type placer interface {
	Backend
	timed
	// Fits says why f cannot be counted here exactly, or nil. above are the flows
	// that win over f on packets that both match; all of them are counted here. It
	// is the engine's again when Fits returns.
	Fits(f flow.Flow, above []Placed) error
	// Gone names the installed flows that nothing counts any more, and why, until Remove.
	// Their counts from before the loss can still be read. A flow whose error satisfies errUnread is
	// still counted, but its counter could not be read for a while.
	Gone() map[string]error
	// Resets returns how often the counters of an installed flow have begun anew by themselves. The number
	// of packets between the last reading of a counter and its new beginning is unknown.
	Resets(f Placed) uint64
}

// carrier is a backend that can hold every flow of the instance, as rules that win its match
// and a counter, though only some of them are published from it: xdp. Such rules and their
// counter are the flow's shadow. Install is Carry and Serve.
type carrier interface {
	Backend
	// Carry puts the shadows of all of flows in, or of none; nobody needs their counts.
	Carry(ctx context.Context, flows []Placed) ([]Installed, error)
	// Serve makes sure that the shadows of flows count on every interface that they
	// ask for, or takes note that nobody needs their counts, and the programs off hooks
	// where nobody needs any. That of a flow that drops does so only while it is on.
	Serve(ctx context.Context, flows []Placed, on bool) error
	// Stretch names a stretch of counting of a flow's shadow: as long as the answer is
	// the same and not 0, the shadow has seen every packet of its flow.
	Stretch(f Placed) uint64
}
