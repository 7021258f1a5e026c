package backend

import (
	"context"
	"fmt"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/flow"
)

// Backend counts flows. The engine calls Install, Remove and Close from one goroutine at a time. The poller calls Read
// from its own goroutine, for slots between their Install and Remove, and also while Install or Remove runs for other
// flows.
type Backend interface {
	Counters
	// Install counts all of flows, or none and returns an error. The result is in the order of flows. A backend whose
	// slots outlive the process recognizes a flow by its identity, and the flow's slot counts on.
	Install(ctx context.Context, flows []Placed) ([]Installed, error)
	// Remove stops counting all of flows, or none and returns an error. It ignores unknown flows.
	Remove(ctx context.Context, flows []Placed) error
	// RemoveStale removes what a dead process has left and this one has not installed. The engine calls it once, after
	// the first Install.
	RemoveStale(ctx context.Context) error
	// Source returns the current source of an installed flow. It may change with the links.
	Source(f Placed) dataplane.Source
	// Conditions lists what is wrong now.
	Conditions() []dataplane.Condition
	// Changed signals that Conditions or sources may have changed.
	Changed() <-chan struct{}
	// Close stops counting. With keep, a backend lets the kernel count on if it can. Idempotent.
	Close(keep bool) error
}

// Idler is implemented by backends with less work while the instance is idle.
type Idler interface {
	Backend
	// SetIdle says whether the instance is idle: no counter has changed for a while. The poller's goroutine calls it, so
	// it must not wait for a control call.
	SetIdle(idle bool)
}

// Placed is a flow with its place in the order of addition: between equal priorities the lower Order wins. Orders are
// valid in one process only. A backend whose rules outlive the process needs places of its own, in the same order.
type Placed struct {
	flow.Flow
	Order uint32
}

// On returns f restricted to one interface.
func (f Placed) On(ifname string) Placed {
	f.Interface = ifname
	return f
}

// Describe names flows for an error. There must be at least one.
func Describe(flows []Placed) string {
	if len(flows) == 1 {
		return fmt.Sprintf("flow %q", flows[0].Name)
	}
	return fmt.Sprintf("%d flows (%q, …)", len(flows), flows[0].Name)
}

// Installed is a flow counted by a backend.
type Installed struct {
	// ID names the flow's slot in Read.
	ID uint32
	// Cookie identifies a run of the slot. While the cookie stays the same, even over a restart of the process, the slot
	// has counted without a gap, except as Gap says.
	Cookie uint64
	Source dataplane.Source
	Basis  string // the unit of bytes: "l2" (without FCS), "l3", "payload", "unknown"
	// Adopted: an earlier process has used the slot, which may have a count.
	Adopted bool
	// Gap: the last process died within a change, and packets may have counted for another slot meanwhile.
	Gap bool
	// Takes: the slot's packets do not reach the backends behind this one, because they are dropped or stolen.
	Takes bool
}
