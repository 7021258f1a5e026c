package backend

import (
	"cmp"
	"context"
	"fmt"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/flow"
)

// Backend counts flows. Install, Remove and Close are called by one goroutine at a time. The poller's goroutine
// calls Read at any time between Install and Remove of the slots that it names, also while Install or Remove runs
// for other flows.
type Backend interface {
	Counters
	// Install counts all of flows, or none and returns an error; the result is in the order of flows. Install
	// recognises a flow of a process that died by its identity, and the flow's slot goes on.
	Install(ctx context.Context, flows []Placed) ([]Installed, error)
	// Remove stops counting all of flows, or none and returns an error. Unknown flows are ignored.
	Remove(ctx context.Context, flows []Placed) error
	// RemoveStale removes the flows of a dead process that this one has not installed. It is called once, after the
	// first Install.
	RemoveStale(ctx context.Context) error
	// Source returns the current source of an installed flow. It may change with the links.
	Source(f Placed) dataplane.Source
	// Conditions lists the backend's conditions.
	Conditions() []dataplane.Condition
	// Changed signals that Conditions or sources may have changed.
	Changed() <-chan struct{}
	// Close stops counting. Where keep is true, a backend that can leaves the kernel counting. Idempotent.
	Close(keep bool) error
}

// Idler is implemented by a backend that does less while the instance is idle.
type Idler interface {
	Backend
	// SetIdle tells that no counter has changed for a while, or that one has. The poller's goroutine calls it: it waits
	// for no control call.
	SetIdle(idle bool)
}

// Placed is a flow with its place in the order of addition, which breaks ties between equal
// priorities. Places are valid in one process only. A backend whose rules outlive the process may
// keep places of its own, in the same order.
type Placed struct {
	flow.Flow
	Order uint32
}

// On returns f restricted to one interface.
func (f Placed) On(ifname string) Placed {
	f.Interface = ifname
	return f
}

// ByPrecedence compares the precedence of flows: the lower priority number wins, then the flow added first.
func ByPrecedence(a, b Placed) int {
	return cmp.Or(cmp.Compare(a.Priority, b.Priority), cmp.Compare(a.Order, b.Order))
}

// Describe names flows in an error.
func Describe(flows []Placed) string {
	if len(flows) == 1 {
		return fmt.Sprintf("flow %q", flows[0].Name)
	}
	return fmt.Sprintf("%d flows (%q, …)", len(flows), flows[0].Name)
}

// Installed is a flow that a backend counts.
type Installed struct {
	// ID names the flow's slot in Read.
	ID uint32
	// Cookie identifies the slot's run. As long as the cookie is the same, even over a restart of this process,
	// the slot has counted without a gap.
	Cookie uint64
	Source dataplane.Source
	Basis  string // the unit of bytes: "l2" (without FCS), "l3", "payload", "unknown"
	// Adopted: the slot existed before, and may stand at more than 0.
	Adopted bool
	// Gap: packets may have counted for another slot, although the cookie is the same: the last process died in a change.
	Gap bool
	// Takes: packets that the slot counts do not reach the backends behind this one (drop, steal).
	Takes bool
}
