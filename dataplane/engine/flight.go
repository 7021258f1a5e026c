package engine

import (
	"slices"
	"time"

	"github.com/flowtally/flowtally/dataplane/flow"
)

// flightTime is the longest time that a packet takes between a device and XDP. The packet waits in a ring of the driver, and for
// an interrupt, which the device may delay to save CPU time.
const flightTime = 50 * time.Millisecond

// awaitFlight waits for the packets in flight of some flows: one of device and XDP has counted them already, and the other has not.
// If the rules of the flows change meanwhile, the two count such a packet for different flows, or both for none.
//
// The device counts received packets before XDP does. So callers wait behind a command to the device, and before they change or
// read XDP. XDP counts sent packets first, so callers wait ahead of the command. Where XDP does not count the flows there is
// nothing to wait for.
func (m *mover) awaitFlight(list []*flowState, d flow.Direction) {
	if m.stack == nil || m.stack.software == nil || !slices.ContainsFunc(list, func(c *flowState) bool { return c.Direction == d && m.countsBeside(c) }) {
		return
	}
	m.letArrive()
}

// letArrive waits until the packets in flight have arrived.
func (m *mover) letArrive() {
	_ = m.ctl.Outside(func() error {
		m.sleep(flightTime)
		return nil
	})
}

// countsBeside reports whether XDP counts packets of a flow now, on any interface, for its shadow or for a flow behind it.
func (m *mover) countsBeside(c *flowState) bool {
	return m.hasHook(c) || slices.ContainsFunc(c.below, func(o *flowState) bool {
		return o.published() && (o.follows || !o.offloaded) && m.hasHook(o)
	})
}

// hasHook reports whether a program of ours counts for the shadow of a flow.
func (m *mover) hasHook(c *flowState) bool {
	return c.hasShadow && len(m.stack.software.Source(c.Placed).Devices) > 0
}
