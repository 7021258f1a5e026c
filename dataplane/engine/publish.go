package engine

import (
	"fmt"
	"slices"

	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/engine/catalogue"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/shm"
)

// publish shows a flow that software counts to readers: it finds or makes the entry in the mirror and the base of the total,
// and has the poller read the slot. displaced: flows have left hardware for this one, and counted its packets until now.
func (m *mover) publish(c *flowState, in backend.Installed, displaced bool) (err error) {
	u, hasHooks := c.backend.(backend.SoftwareBackend)
	movedHere := false // another slot, or hardware, has counted the total so far
	c.edit().handle, c.past, err = m.catalogue.Entry(entryOf(c.Flow), cookiesOf(in.Cookie), func(old *catalogue.Inherited) (shm.Continuity, error) {
		movedHere = old != nil && old.Continuity.Cookie != in.Cookie
		var now backend.Moment
		if hasHooks {
			now = u.Now()
		}
		past, err := m.carryOn(c, old, in, displaced)
		past.Seen = uint32(now)
		return past, err
	})
	if err != nil {
		return err
	}
	if hasHooks && movedHere {
		u.Rely(c.Placed)
	}
	c.basis = in.Basis
	c.slot = in.Cookie
	c.base = baseOf(c.past)
	if err := m.writeSource(c); err != nil {
		return err
	}
	m.plan.SetSource(c.handle, c.backend, in.ID, c.base)
	return nil
}

// entryOf returns the entry of a flow in the mirror.
func entryOf(f flow.Flow) shm.Entry {
	return shm.Entry{
		Name: f.Name, Kind: "flow", Unit: "packets", Text: f.Identity(), Labels: f.Labels, Latency: f.Latency,
	}
}

// carryOn returns how a total goes on in a slot of c.backend. old is the entry of an earlier process or flow; nil if the total
// is new.
func (m *mover) carryOn(c *flowState, old *catalogue.Inherited, in backend.Installed, displaced bool) (shm.Continuity, error) {
	u, hasHooks := c.backend.(backend.SoftwareBackend)
	if hasHooks && old != nil {
		last, _ := u.Outage(c.Placed)
		in.Gap = in.Gap || last.After(backend.Moment(old.Continuity.Seen))
	}
	if old != nil && old.Continuity.Cookie == in.Cookie { // the slot has counted on
		past := old.Continuity
		if in.Gap {
			past.Discontinuities++
		}
		return past, nil
	}

	var own backend.Pair // what the slot has counted and the old total has, too, or the totals of displaced flows
	if in.Adopted && old != nil || !in.Adopted && displaced {
		var err error
		if own, err = backend.ReadOne(c.backend, in.ID); err != nil {
			return shm.Continuity{}, err
		}
	}
	past := shm.Continuity{Cookie: in.Cookie}
	var total backend.Pair
	if old != nil {
		h, err := takeUp(old, u, c.Placed, in, own)
		if err != nil {
			return past, err
		}
		var exact bool
		past.Discontinuities = old.Continuity.Discontinuities
		if total, exact, _ = h.total(); !exact {
			past.Discontinuities++
		}
	}
	setBase(&past, backend.Sub(total, own))
	return past, nil
}

// takeUp returns the handover of an inherited entry to a slot with the given count, in software u. u is nil if software has no
// slot of the flow.
func takeUp(old *catalogue.Inherited, u backend.SoftwareBackend, f backend.Placed, slot backend.Installed, count backend.Pair) (handover, error) {
	h := handover{sameBytes: true} // as readers see it: the entry has one basis
	last, err := old.Total()
	if h.last = last; u == nil || !isCountedBy(old.Continuity, slot) {
		return h, err
	}
	h.bySlot = backend.Add(baseOf(old.Continuity), count)
	since, covered := u.CompleteSince(f)
	h.complete = !slot.Gap && covered && !since.After(backend.Moment(old.Continuity.Seen))
	if err != nil {
		h.last = h.bySlot
	}
	return h, nil
}

// publishInSoftware publishes a fresh flow of the stack from its shadow. displaced are the flows that have just left hardware
// for it. Their totals have the packets that passed until now, so the packets that its shadow already has are not added.
func (m *mover) publishInSoftware(c *flowState, displaced []*flowState) error {
	c.backend, c.edit().source = m.stack.software, m.stack.software.Source(c.Placed)
	if err := m.publish(c, c.shadow, len(displaced) > 0); err != nil {
		return err
	}
	c.shadowBase = c.base
	c.follows = true
	if len(displaced) == 0 || c.shadow.Adopted || c.base == (backend.Pair{}) {
		return nil
	}
	for _, o := range displaced {
		past := o.past
		past.Discontinuities++
		m.sendMoved(o, fmt.Sprintf("packets passed until XDP counted flow %q", c.Name), true)
		if err := m.writeContinuity(o, past); err != nil {
			return err
		}
	}
	return nil
}

// publishInHardware publishes a fresh flow from hardware. before is the count of its shadow from before hardware began to
// count. ahead: its shadow has packets that hardware has counted for flows behind it.
func (m *mover) publishInHardware(c *flowState, before shadowRead, ahead bool) error {
	c.backend = m.stack.hardware
	c.basis = c.hardware.Basis
	c.edit().source = c.hardware.Source
	amid := uint64(0)
	aligns := false // with audit, the next pause adds the packets of its shadow that the total lacks
	var u backend.SoftwareBackend
	if c.hasShadow {
		u = m.stack.software
		_, complete := u.CompleteSince(c.Placed)
		aligns = m.stack.audit && complete
		after, err := backend.ReadOne(u, c.shadow.ID)
		if err != nil {
			return err
		}
		amid = after.Packets - before.first
	}

	taken := false // the total is inherited
	var total backend.Pair
	var err error
	cookies := append(cookiesOf(c.shadow.Cookie), c.hardware.Cookie)
	c.edit().handle, c.past, err = m.catalogue.Entry(entryOf(c.Flow), cookies, func(old *catalogue.Inherited) (shm.Continuity, error) {
		past := shm.Continuity{Cookie: c.hardware.Cookie, Seen: uint32(before.at)}
		if old == nil {
			if ahead {
				return past, nil
			}
			// XDP has counted these packets for this flow, and no other total has them.
			total = before.Pair
			setBase(&past, total)
			if amid > 0 && !aligns && c.winsInSoftware() {
				past.Discontinuities++
			}
			return past, nil
		}
		h, err := takeUp(old, u, c.Placed, c.shadow, before.Pair)
		if err != nil {
			return past, err
		}
		h.passed = amid
		taken = true
		var exact bool
		past.Discontinuities = old.Continuity.Discontinuities
		if total, exact, _ = h.total(); !exact || ahead {
			past.Discontinuities++
		}

		// If we are killed before writeHardwareContinuity, the next start goes on from the slot, which knows the total.
		setBase(&past, total)
		if u != nil && isCountedBy(old.Continuity, c.shadow) {
			past.Cookie = old.Continuity.Cookie
			setBase(&past, backend.Sub(total, before.Pair))
		}
		return past, nil
	})
	if err != nil {
		return err
	}
	c.base, c.shadowBase, c.follows = total, backend.Sub(total, before.Pair), c.mayFollow()
	c.needsAlign = false
	switch {
	case ahead, amid > 0 && !taken && !aligns: // the shadow has packets that the total will never get
		c.stopFollowing()
		m.awaitPause(c)
	case amid > 0:
		m.noteNeedsAlign(c)
		if taken {
			m.log.Warn("packets passed while a total was taken up in hardware", "flow", c.Name, "at_most", amid)
		}
	}
	m.plan.SetSource(c.handle, m.stack.hardware, c.hardware.ID, c.base)
	return nil
}

// isCountedBy reports whether a total was counted by a slot, or by hardware beside that slot.
func isCountedBy(past shm.Continuity, in backend.Installed) bool {
	return slices.Contains(cookiesOf(in.Cookie), past.Cookie)
}

// cookiesOf returns the cookies by which an entry may name a slot.
func cookiesOf(slot uint64) []uint64 { return []uint64{slot, besideHardware(slot)} }

// baseOf returns the base of a total.
func baseOf(past shm.Continuity) backend.Pair {
	return backend.Pair{Packets: past.BasePackets, Bytes: past.BaseBytes}
}

func setBase(past *shm.Continuity, base backend.Pair) {
	past.BasePackets = base.Packets
	past.BaseBytes = base.Bytes
}

// writeSource writes the source of a flow to the mirror. If all interfaces of the flow are missing, it has no source, and
// readers keep its last value.
func (m *mover) writeSource(c *flowState) error {
	return m.catalogue.SetSource(c.handle, c.source.String(), c.basis, c.isDown())
}
