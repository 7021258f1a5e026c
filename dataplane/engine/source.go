package engine

import (
	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
)

// updateSource updates a flow that has not moved, but whose source may have changed: its hook was lost, its device has reset its
// counters, or its interface is another one.
func (m *mover) updateSource(c *flowState) error {
	if err := m.declareLosses(c); err != nil {
		return err
	}
	if c.offload != nil && c.gone != nil {
		return nil
	}
	src := m.sourceOf(c)
	if src.Equal(c.source) {
		return nil
	}
	c.edit().source = src
	m.pending.send(dataplane.Event{Kind: dataplane.SourceChanged, Object: c.Name, Text: src.String()})
	return m.writeSource(c)
}

// outage is the reason for a discontinuity in the event of a flow that XDP or TCX counts.
const outage = "its hook was lost for a while, or counting moved between XDP and TCX"

// declareLosses adds a discontinuity to the total of a flow if its source may have missed packets since the last discontinuity.
func (m *mover) declareLosses(c *flowState) error {
	if u, ok := c.backend.(backend.SoftwareBackend); ok {
		if !c.lacksPackets(u) {
			return nil
		}
		c.edit().source = u.Source(c.Placed)
		m.sendMoved(c, outage, true)
		return m.writeContinuity(c, broken(c.goesOn(c.slotCookie(), c.base), u.Now()))
	}
	if c.offload == nil {
		return nil
	}
	if n := m.resets(c); c.gone == nil && n != c.resets {
		c.resets = n
		m.noteNeedsAlign(c)
		c.past.Discontinuities++
		m.sendMoved(c, "a counter of its device was reset", true)
		return m.catalogue.SetContinuity(c.handle, c.past)
	}
	if c.follows && !m.shadowComplete(c) {
		// The count of the shadow does not tell the total any more, even if the device is lost.
		if err := m.writeHardwareContinuity(c); err != nil {
			return err
		}
	}
	return m.declareDivided(c)
}

// lacksPackets reports whether an outage of a hook of the flow has ended since its last discontinuity.
func (c *flowState) lacksPackets(u backend.SoftwareBackend) bool {
	last, _ := u.Outage(c.Placed)
	return last.After(c.seen())
}

// declareAmid is declareLosses while a control call holds ctl and lets readers in, for flows that XDP or TCX counts. The call may read
// the flow at the same time, so declareAmid changes only its past, here and in the mirror. Callers send the event.
func (m *mover) declareAmid(c *flowState) (declared bool, err error) {
	u, ok := c.backend.(backend.SoftwareBackend)
	if !ok || !c.published() || !c.lacksPackets(u) {
		return false, nil
	}
	past := broken(c.past, u.Now())
	if err := m.catalogue.SetContinuity(c.handle, past); err != nil {
		return false, err
	}
	c.past = past
	return true, nil
}

// declareDivided is declareLosses for the interfaces on which the shadow of a flow counts in place of lost devices.
func (m *mover) declareDivided(c *flowState) error {
	for _, a := range c.lost {
		if last, _ := m.stack.software.Outage(c.On(a.name)); a.active && last.After(c.seen()) {
			return m.publishDivided(c, outage, true)
		}
	}
	return nil
}

// resets returns how often the device of a flow has reset its counters; 0 for a flow that hardware does not count.
func (m *mover) resets(c *flowState) uint64 {
	if c.offload == nil || !c.offloaded {
		return 0
	}
	return m.stack.hardware.Resets(c.Placed)
}

// isDown reports whether all interfaces of a flow are missing.
func (c *flowState) isDown() bool { return c.isDownAt(c.source) }

// isDownAt is isDown of a flow with the given source.
func (c *flowState) isDownAt(source dataplane.Source) bool {
	_, hooks := c.backend.(backend.SoftwareBackend)
	return (hooks || c.offload != nil) && len(source.Devices) == 0
}
