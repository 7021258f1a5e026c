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

// countsBeside reports whether XDP counts the packets of a flow now, for its shadow or for that of a flow behind it.
func (m *mover) countsBeside(c *flowState) bool {
	if c.hasShadow {
		if _, ok := m.stack.software.CompleteSince(c.Placed); ok {
			return true
		}
	}
	return slices.ContainsFunc(c.below, func(o *flowState) bool { return o.published() && m.shadowComplete(o) })
}
