package dataplane

import (
	"context"
	"time"

	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/shm"
)

// Service is a running instance: flows go in, and counts come out in the mirror. All methods may be called from any
// goroutine. After Close they return [ErrClosed].
//
// # Contexts
//
// A method returns at most about a second after its ctx ends, even if a device is still busy with a command, and its
// error satisfies errors.Is(err, ctx.Err()). What then happens to a change depends on the method. AddFlows and SetFlows
// undo it. RemoveFlows completes it in the background, and so does a SetFlows that returns an [UnfinishedError]. The next
// change waits until that is done.
//
// # Consistency
//
// Changes run one at a time. Info, Interfaces, Placements, Conditions, Events and ReservedWords do not wait for them:
// they show the state before a change until it ends, and the state after it once its call has returned.
type Service interface {
	// Info describes the instance. Version, PID and Started describe the counting process, and change when the plugin
	// restarts. Everything else is constant.
	Info(ctx context.Context) (Info, error)

	// AddFlows adds all flows or, on error, none. It returns their placements in the order of the arguments. It fails
	// with ErrExists if a name is in use.
	AddFlows(ctx context.Context, flows ...flow.Flow) ([]Placement, error)

	// RemoveFlows removes all named flows or, on error, none. It fails with ErrNotFound if a name does not exist.
	RemoveFlows(ctx context.Context, names ...string) error

	// SetFlows replaces all flows of the instance with the given flows and returns the difference. On error nothing
	// changes, except that an [UnfinishedError] comes with the difference of a change still under way.
	//
	// New flows are added before old ones are removed. SetFlows fails with ErrFull if the tables or the mirror cannot
	// hold both; call RemoveFlows first then.
	//
	// An unchanged flow does not miss or repeat a packet where XDP counts it. Where a device counts it, and a flow that
	// wins over it changes, XDP counts it meanwhile; an [Event] reports this move with the packets it missed.
	// On each hook and device, a flow changes in one step, but hooks and devices change one after the other.
	// If a flow needs several rules, for a port range or for both IP versions, its rules change one after the other, too.
	//
	// A flow starts again from 0 if its match, direction or interface changes. Its total continues after any other
	// change. A flow that starts again, or whose name, latency or labels change, gets a new handle. Readers must
	// look it up by name again, and find it after the next poll cycle.
	//
	// If flows of equal priority overlap, the first in the list wins, whatever the order was before. With KeepOthers,
	// existing flows keep their order and win over added ones.
	SetFlows(ctx context.Context, flows []flow.Flow, opts SetOptions) (Difference, error)

	// Placements describes the flows of the given names, or every flow if there are none, and who counts each. The list
	// is ordered by name. Unknown names are left out.
	Placements(ctx context.Context, names ...string) ([]Placement, error)

	// Interfaces returns the configured interfaces, including patterns. To change them, call SetFlows with
	// [SetOptions.Config].
	Interfaces(ctx context.Context) ([]Interface, error)

	// Conditions lists the states that need attention, worst first.
	Conditions(ctx context.Context) ([]Condition, error)

	// Events streams changes from now on. The channel is closed when ctx ends or the instance closes. A slow receiver
	// loses the oldest events; Lost in its next event says how many.
	Events(ctx context.Context) (<-chan Event, error)

	// QueuePairs returns the queue pairs of the instance.
	QueuePairs() QueuePairs

	// ReserveWords creates a counter whose value another program writes. That program takes the words from the socket
	// beside the mirror. ReserveWords fails with ErrExists if a flow or another counter has the name.
	//
	// The reservation survives SetFlows, whether or not [Config.Words] of the applied configuration lists the name.
	ReserveWords(ctx context.Context, name string) (ReservedWords, error)

	// ReleaseWords removes the counter of reserved words. A program that has taken the words can still write to them,
	// but nobody reads them. ReleaseWords fails with ErrNotFound if no reserved words have the name.
	ReleaseWords(ctx context.Context, name string) error

	// ReservedWords lists the reserved words, ordered by name.
	ReservedWords(ctx context.Context) ([]ReservedWords, error)

	// Close publishes the last values and stops counting, unless [XDPConfig.KeepPins] is set. It is idempotent.
	Close() error
}

// Info describes a running instance.
type Info struct {
	Instance string
	Mirror   string    // path of the mirror file
	Version  string    // of the counting program
	PID      int       // of the counting process, in its PID namespace; 0 while none runs, which must not reach kill(2)
	Started  time.Time // when the counting process started
	File     string    // the configuration file that the host was started with; empty if there is none
}

// Placement says who counts a flow, and why nobody better does.
type Placement struct {
	Flow flow.Flow

	// Order decides between flows of equal priority: the matching flow with the lowest Order counts the packet.
	// Instances of earlier versions do not report it and leave it 0.
	Order uint32

	Source   Source
	Counter  Handle
	Rejected []Rejection // the backends that cannot count the flow
}

// Handle identifies a counter of the mirror, for shm.Reader. It is never reused for another counter.
type Handle = shm.Handle

// Rejection says why a backend cannot count a flow, or why a completion source cannot count a queue pair.
type Rejection struct {
	Backend, Reason string
	// Always is set if the reason applies to every flow of the instance, because the backend did not open.
	Always bool
}

// NoRDMADevice is the reason of a [Rejection] by backend rdma on a host whose kernel has no RDMA. It is no mistake: most
// hosts are so.
const NoRDMADevice = "no RDMA device here"

// Event is a change that a program may react to.
type Event struct {
	Time   time.Time
	Kind   EventKind
	Code   ConditionCode // of the condition, for ConditionRaised and ConditionGone
	Object string
	Text   string
	Lost   uint64 // events this receiver missed before this one
	// Uncounted has the packets nobody counted during a SourceChanged.
	Uncounted Uncounted
}

// Uncounted is what the total of a counter lacks because packets or completions passed while its source changed. The
// zero value means that nothing is missing.
type Uncounted struct {
	// Packets and Bytes are exact unless Unknown is set. They are 0 for completions.
	Packets, Bytes uint64
	// Unknown is set if an unknown number may have passed uncounted. After a move between XDP and TCX, it also means
	// that some packets may have been counted twice.
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
