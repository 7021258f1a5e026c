package dataplane

import (
	"context"
	"time"

	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/shm"
)

// Service is a running instance: flows go in, counts come out in the mirror. All methods may be called from any
// goroutine. After Close every method returns an error that satisfies errors.Is(err, ErrClosed).
//
// A method outlasts its ctx by about a second at most, however long a device takes for a command. Its error then satisfies
// errors.Is(err, ctx.Err()). An AddFlows or a SetFlows whose ctx has ended is undone. A RemoveFlows goes on, as does a
// SetFlows that returns an [UnfinishedError]. The next change waits for their end.
//
// Info, Interfaces, Placements, Conditions, Events and ReservedWords wait for no change. Until a change has ended,
// Interfaces and Placements have the set before it. When its call has returned, they have the set after it.
type Service interface {
	// Info describes the instance. It does not change while the instance runs, except for Version, PID and Started,
	// which change with the process that counts.
	Info(ctx context.Context) (Info, error)

	// AddFlows adds all of flows or none, and returns their placements, in the order of flows. A name
	// that exists is refused with ErrExists.
	AddFlows(ctx context.Context, flows ...flow.Flow) ([]Placement, error)

	// RemoveFlows removes all of names or none. A name that does not exist is refused with ErrNotFound.
	RemoveFlows(ctx context.Context, names ...string) error

	// SetFlows makes the set of flows the given flows, all or none, and returns the difference. After an error
	// every flow is counted as before, except after an [UnfinishedError], with which it returns the difference. Flows
	// are added before others are removed: ErrFull says that the tables or the mirror have no room for both. Remove
	// flows in a call before then.
	//
	// Each flow changes at one instant on each hook and device, and different hooks and devices change at different
	// instants. The rules of a flow that needs several (a range, both IP families) change one after the other.
	// A flow that does not change is counted without a gap, and each of its packets once, where XDP counts it. Where a
	// device counts it and a flow that wins over it changes, it is counted by XDP meanwhile, which is a
	// discontinuity (Event.Uncounted).
	//
	// A flow whose match, direction or interface changes counts anew, from 0. Any other change leaves the total. The
	// counter of a flow that counts anew, or whose name, latency or labels change, gets another handle:
	// its readers find it by name, absent until the next poll cycle.
	//
	// Of flows of equal priority that overlap, the first one in flows wins, in any order of the set before. With
	// KeepOthers the flows of the set keep their order, and added flows come behind them.
	SetFlows(ctx context.Context, flows []flow.Flow, opts SetOptions) (Difference, error)

	// Placements lists the flows of these names, or all flows without names, each with its source. The list is
	// ordered by name and leaves out names that no flow has.
	Placements(ctx context.Context, names ...string) ([]Placement, error)

	// Interfaces returns the names and patterns of the interfaces to count on. SetFlows changes them
	// ([SetOptions.Config]).
	Interfaces(ctx context.Context) ([]Interface, error)

	// Conditions lists the states that need attention, worst first.
	Conditions(ctx context.Context) ([]Condition, error)

	// Events streams changes from now on until ctx ends or the instance closes;
	// the channel is closed then. A receiver that lags loses the oldest events,
	// and the next one it gets says how many in Lost.
	Events(ctx context.Context) (<-chan Event, error)

	// QueuePairs returns the queue pairs of the instance.
	QueuePairs() QueuePairs

	// ReserveWords makes a counter of that name whose value another program writes: it takes the words on the socket
	// beside the mirror. A name that a flow or another counter has is refused with ErrExists. A configuration that
	// SetFlows is to apply later names the words too ([Config.Words]).
	ReserveWords(ctx context.Context, name string) (ReservedWords, error)

	// ReleaseWords removes the counter of reserved words. A program that has them goes on without a counter. A name
	// that no words have is refused with ErrNotFound.
	ReleaseWords(ctx context.Context, name string) error

	// ReservedWords lists the reserved words, ordered by name.
	ReservedWords(ctx context.Context) ([]ReservedWords, error)

	// Close stops counting, unless pins are kept, and publishes the last values. Idempotent.
	Close() error
}

// Info describes a running instance.
type Info struct {
	Instance string
	Mirror   string    // path of the mirror file
	Version  string    // of the program that counts
	PID      int       // of the process that counts, in its own PID namespace; 0 while no process runs: do not signal it then
	Started  time.Time // when that process started
	File     string    // the configuration file that the instance was started with, as its host says; "": none
}

// Placement has the source of a flow, and the reasons against other backends.
type Placement struct {
	Flow flow.Flow

	// Order is the place of the flow: of flows of equal priority that match a packet, the lowest counts it.
	// 0: the instance is of an earlier version, which does not tell it.
	Order uint32

	Source   Source
	Counter  Handle
	Rejected []Rejection
}

// Handle names a counter of the mirror.
type Handle = shm.Handle

// Rejection is one backend's reason not to count a flow, or one completion source's not
// to count a queue pair.
type Rejection struct {
	Backend, Reason string
	// Always: the reason holds for every flow of the instance, since the backend is not open.
	Always bool
}

// Severity of a condition.
type Severity uint8

const (
	Low    Severity = iota // counting is right; something could be better
	Medium                 // counting is right but costs more or covers less than asked
	High                   // some flows are not counted, or counts may be wrong
)

// Condition is a state that needs attention. It is raised once, and ends with its cause.
type Condition struct {
	Code     ConditionCode
	Severity Severity // of the code; [CodeTCXBefore] can also be Low
	Object   string   // the interface, device, flow, queue pair or file
	Text     string   // the state and its cause, for a person
	Fix      string   // the next step, a command if possible
	Since    time.Time
}

// Event is a change that a program may react to.
type Event struct {
	Time   time.Time
	Kind   EventKind
	Code   ConditionCode // of the condition that was raised or is gone; else empty
	Object string
	Text   string
	Lost   uint64 // events that this receiver missed before this one
	// Uncounted has, with SourceChanged, the packets that no source counted during the change.
	Uncounted Uncounted
}

// Uncounted is the number of packets, or completions, that passed while the source of a counter changed and that its
// total lacks. The zero value: nothing.
type Uncounted struct {
	// Packets and Bytes are exact unless Unknown. For completions only Unknown is set.
	Packets, Bytes uint64
	// Unknown: packets or completions may have passed uncounted, in an unknown number. A move between XDP and TCX
	// may have counted packets twice.
	Unknown bool
}

// EventKind is the kind of a change.
type EventKind string

const (
	FlowAdded       EventKind = "flow-added"       // Object is its name
	FlowRemoved     EventKind = "flow-removed"     // Object is its name
	FlowChanged     EventKind = "flow-changed"     // Object is its name, Text the change: the text of its line in Difference.String
	SourceChanged   EventKind = "source-changed"   // Object is the name of the flow or the completion counter, Text its source now
	ConditionRaised EventKind = "condition-raised" // Object is the condition's, Text its code and text
	ConditionGone   EventKind = "condition-gone"   // Object is the condition's, Text its code
	PluginRestarted EventKind = "plugin-restarted" // a new process counts; unsent events of the old process are lost
)
