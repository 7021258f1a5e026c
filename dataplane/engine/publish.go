package engine

import (
	"slices"

	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/engine/catalogue"
	"github.com/flowtally/flowtally/shm"
)

// publish gives a flow its entry in the mirror, with the software that counts it as the source, finds the base of its total
// and adds it to the plan. displaced says that flows left hardware for it: they counted its packets until now.
func (m *mover) publish(c *flowState, in backend.Installed, displaced bool) (err error) {
	var own backend.Pair
	if displaced && !in.Adopted {
		if own, err = backend.ReadOne(c.backend, in.ID); err != nil {
			return err
		}
	}
	u, hasHooks := c.backend.(backend.SoftwareBackend)
	movedHere := false // the total has counted elsewhere
	c.edit().handle, c.past, err = m.catalogue.Entry(entryOf(c.Flow), cookiesOf(in.Cookie), func(old *catalogue.Inherited) (shm.Continuity, error) {
		movedHere = old != nil && old.Continuity.Cookie != in.Cookie
		if movedHere && hasHooks && isCountedBy(old.Continuity, in) {
			count, err := backend.ReadOne(c.backend, in.ID)
			if err != nil {
				return shm.Continuity{}, err
			}
			// The total is never below the published one. Otherwise the slot knows more, also where it lacks packets.
			if !old.FallsTo(count) {
				in.Gap = in.Gap || !knowsTotal(u, c.Placed, in, old, count)
				old = old.From(in.Cookie)
			}
		}
		var now backend.Moment
		if hasHooks {
			now = u.Now()
			last, _ := u.Outage(c.Placed)
			in.Gap = in.Gap || old != nil && last.After(backend.Moment(old.Continuity.Seen))
		}
		past, err := catalogue.CarryOn(c.backend, old, in)
		past.Seen = uint32(now)
		past.BasePackets, past.BaseBytes = past.BasePackets-own.Packets, past.BaseBytes-own.Bytes
		return past, err
	})
	if err != nil {
		return err
	}
	if hasHooks && movedHere {
		u.Rely(c.Placed)
	}
	c.basis, c.slot = in.Basis, in.Cookie
	c.base = backend.Pair{Packets: c.past.BasePackets, Bytes: c.past.BaseBytes}
	if err := m.writeSource(c); err != nil {
		return err
	}
	m.plan.SetSource(c.handle, c.backend, in.ID, c.base)
	return nil
}

// publishInSoftware is publish for a fresh flow of the stack, whose shadow counts it.
func (m *mover) publishInSoftware(c *flowState, displaced bool) error {
	c.backend, c.edit().source = m.stack.software, m.stack.software.Source(c.Placed)
	err := m.publish(c, c.shadow, displaced)
	c.shadowBase, c.follows = c.base, true
	return err
}

// publishInHardware gives a fresh flow its entry in the mirror, with hardware as the source. If an earlier process left the
// shadow pinned, and the flow's total followed from the shadow's count, the total goes on from that count. It has a
// discontinuity if the shadow may lack packets.
func (m *mover) publishInHardware(c *flowState, before shadowRead) error {
	c.backend, c.basis, c.edit().source = m.stack.hardware, c.hardware.Basis, c.hardware.Source
	known := false
	var err error
	cookies := append(cookiesOf(c.shadow.Cookie), c.hardware.Cookie)
	c.edit().handle, c.past, err = m.catalogue.Entry(entryOf(c.Flow), cookies, func(old *catalogue.Inherited) (shm.Continuity, error) {
		var past shm.Continuity
		var err error
		if known = old != nil && c.hasShadow && knowsTotal(m.stack.software, c.Placed, c.shadow, old, before.Pair); known {
			past = old.Continuity
		} else {
			past, err = catalogue.CarryOn(m.stack.hardware, old, backend.Installed{Cookie: c.hardware.Cookie})
			if err == nil && old != nil && c.hasShadow && isCountedBy(old.Continuity, c.shadow) {
				// After the last published total the shadow counted on: at least these packets have passed.
				past.BasePackets = max(past.BasePackets, old.Continuity.BasePackets+before.Packets)
				past.BaseBytes = max(past.BaseBytes, old.Continuity.BaseBytes+before.Bytes)
			}
		}
		past.Seen = uint32(before.at)
		return past, err
	})
	if err != nil {
		return err
	}
	c.base = backend.Pair{Packets: c.past.BasePackets, Bytes: c.past.BaseBytes}
	if c.follows = c.hasShadow; known {
		c.shadowBase, c.base = c.base, backend.Add(c.base, before.Pair)
	} else {
		c.shadowBase = backend.Sub(c.base, before.Pair)
	}
	if c.hasShadow {
		after, err := backend.ReadOne(m.stack.software, c.shadow.ID)
		if err != nil {
			return err
		}
		if c.needsAlign = false; after != before.Pair {
			m.noteNeedsAlign(c)
			if known {
				c.past.Discontinuities++
				m.log.Warn("packets passed while a total was taken up in hardware", "flow", c.Name, "at_most", after.Packets-before.Packets)
			}
		}
	}
	m.plan.SetSource(c.handle, m.stack.hardware, c.hardware.ID, c.base)
	return nil
}

// knowsTotal reports whether an inherited slot, which stands at count, has seen every packet of f. An interface that f had and
// has no more may have packets that hardware alone has counted: then the total would fall.
func knowsTotal(u backend.SoftwareBackend, f backend.Placed, in backend.Installed, old *catalogue.Inherited, count backend.Pair) bool {
	if in.Gap || !isCountedBy(old.Continuity, in) || old.FallsTo(count) {
		return false
	}
	since, ok := u.CompleteSince(f)
	return ok && !since.After(backend.Moment(old.Continuity.Seen))
}

// isCountedBy reports whether a slot, or hardware beside it, has counted a total.
func isCountedBy(past shm.Continuity, in backend.Installed) bool {
	return slices.Contains(cookiesOf(in.Cookie), past.Cookie)
}

// cookiesOf returns the cookies of the entries whose totals a slot may know.
func cookiesOf(slot uint64) []uint64 { return []uint64{slot, besideHardware(slot)} }

// writeSource writes the source of a flow to the mirror. A flow whose interfaces are all missing has no source, and
// keeps its last value.
func (m *mover) writeSource(c *flowState) error {
	return m.catalogue.SetSource(c.handle, c.source.String(), c.basis, c.isDown())
}
