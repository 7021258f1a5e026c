package engine

import (
	"context"
	"fmt"
	"log/slog"
	"slices"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/engine/catalogue"
	"github.com/flowtally/flowtally/dataplane/engine/control"
	"github.com/flowtally/flowtally/dataplane/engine/poll"
	"github.com/flowtally/flowtally/shm"
)

// mover moves single flows between hardware and their shadows, and keeps their totals. Its methods are called with
// Engine.ctl held.
type mover struct {
	ctl       control.Lock
	stack     *stack // nil: no backend counts in hardware yet
	catalogue *catalogue.Catalogue
	plan      *poll.Plan
	pending   *pending
	log       *slog.Logger
}

// setActive is SoftwareBackend.SetActive outside ctl, as are countApart and removeFromHardware of their names.
func (m *mover) setActive(ctx context.Context, flows []*flowState, on bool) error {
	return m.ctl.Outside(func() error { return m.stack.software.SetActive(ctx, placedOf(flows), on) })
}

func (m *mover) countApart(ctx context.Context, flows []*flowState, ifname string, on bool) (ids []uint32, err error) {
	err = m.ctl.Outside(func() (err error) {
		ids, err = m.stack.software.CountApart(ctx, placedOf(flows), ifname, on)
		return err
	})
	return ids, err
}

func (m *mover) removeFromHardware(ctx context.Context, c *flowState) error {
	return m.ctl.Outside(func() error { return m.stack.hardware.Remove(ctx, []backend.Placed{c.Placed}) })
}

// shadowComplete reports whether the shadow has seen every packet of the total. A shadow behind hardware that takes the
// packets away sees none.
func (m *mover) shadowComplete(c *flowState) bool {
	if !c.hasShadow || !c.follows || c.hardware.Takes {
		return false
	}
	since, ok := m.stack.software.CompleteSince(c.Placed)
	return ok && !since.After(c.seen())
}

// shadowRead is a count of a flow's shadow, and when it was read.
type shadowRead struct {
	backend.Pair
	at backend.Moment
}

// readShadows reads the shadows of a list, before hardware counts too. From then on both count, and hardware has never
// counted more than the shadow has seen.
func (m *mover) readShadows(ctx context.Context, list []*flowState) ([]shadowRead, error) {
	s := m.stack
	before := make([]shadowRead, len(list))
	if s.software == nil {
		return before, nil
	}
	if s.audit {
		if err := m.setActive(ctx, list, true); err != nil {
			return nil, fmt.Errorf("counting beside %s, as rdma.audit asks for: %w", s.hardware.Name(), err)
		}
	}
	for i, c := range list {
		if !c.hasShadow {
			continue
		}
		before[i].at = s.software.Now()
		var err error
		if before[i].Pair, err = backend.ReadOne(s.software, c.shadow.ID); err != nil {
			return nil, fmt.Errorf("flow %q: reading its shadow: %w", c.Name, err)
		}
	}
	return before, nil
}

// toSoftware makes a flow's shadow its source. A shadow that has seen every packet knows the total. Otherwise the total goes on
// from the last value of hardware, with a discontinuity.
func (m *mover) toSoftware(ctx context.Context, c *flowState, why error) error {
	s, lost := m.stack, c.gone != nil
	if err := c.uncountable(""); err != nil {
		return err
	}
	if err := m.setActive(ctx, []*flowState{c}, true); err != nil {
		return err
	}
	if err := m.joinShadow(ctx, c); err != nil {
		return err
	}
	now := s.software.Now()
	// Without audit, packets that the total lacks since it went to hardware are not added without a discontinuity. The shadow is
	// complete or not before hardware lets the flow go: that may take long.
	whole := m.shadowComplete(c) && (s.audit || !c.needsAlign)
	if !lost { // its counter is read to the end below
		if err := m.removeFromHardware(ctx, c); err != nil {
			return fmt.Errorf("removing it from %s: %w", s.hardware.Name(), err)
		}
	}
	var exact, lacks bool
	err := m.plan.ChangeSource(c.handle, func(stands backend.Pair) (backend.Counters, uint32, backend.Pair, error) {
		own, err := backend.ReadOne(s.software, c.shadow.ID)
		if err != nil {
			return nil, 0, backend.Pair{}, err
		}
		h := handover{stands: stands, complete: whole, sameBytes: c.basis == c.shadow.Basis}
		if c.follows { // else the base is not the shadow's
			h.known = backend.Add(c.shadowBase, own)
		}
		var total backend.Pair
		total, exact, lacks = h.total()
		c.base = backend.Sub(total, own)
		return s.software, c.shadow.ID, c.base, nil
	})
	if err != nil {
		return err
	}
	if lost {
		if err := m.removeFromHardware(ctx, c); err != nil {
			m.log.Warn("removing a flow that its device lost", "flow", c.Name, "err", err)
		}
	}
	c.offloaded = false
	c.gone = nil
	c.backend, c.basis, c.edit().source = s.software, c.shadow.Basis, s.software.Source(c.Placed)
	c.shadowBase = c.base
	c.follows = true
	s.software.Rely(c.Placed)
	m.sendMoved(c, fmt.Sprintf("%v", why), lacks)
	past := c.goesOn(c.slotCookie(), c.base)
	if !exact {
		past = broken(past, now)
	}
	return m.writeContinuity(c, past)
}

// toHardware makes hardware the source of a flow. before is the count of its shadow before hardware began to count.
func (m *mover) toHardware(c *flowState, before shadowRead) error {
	s := m.stack
	suspended := c.gone != nil
	h := handover{sameBytes: true} // hardware's bytes come behind those of the shadow
	if c.follows {
		h.known = backend.Add(c.shadowBase, before.Pair)
	}
	if suspended {
		h.complete = m.shadowComplete(c)
	} else {
		h.complete = !c.missedPackets(s.software)
	}

	var lacks bool
	err := m.plan.ChangeSource(c.handle, func(stands backend.Pair) (backend.Counters, uint32, backend.Pair, error) {
		// Of a flow that its shadow counts, readers may have seen packets that hardware has counted too.
		h.stands = h.known
		if suspended {
			h.stands = stands
		}
		if c.hasShadow {
			after, err := backend.ReadOne(s.software, c.shadow.ID)
			if err != nil {
				return nil, 0, backend.Pair{}, err
			}
			h.passed = after.Packets - before.Packets
		}
		c.base, _, lacks = h.total()
		return s.hardware, c.hardware.ID, c.base, nil
	})
	if err != nil {
		return err
	}
	if c.hasShadow {
		c.shadowBase = backend.Sub(c.base, before.Pair)
	}
	c.follows, c.past.Seen = c.mayFollow(), uint32(before.at)
	c.lastIdle = idleSample{}
	c.gone = nil
	c.backend = s.hardware
	c.basis = c.hardware.Basis
	c.edit().source = c.hardware.Source
	if c.needsAlign = false; lacks {
		m.noteNeedsAlign(c)
		c.past.Discontinuities++
	}
	text := ""
	if h.passed > 0 {
		text = fmt.Sprintf("at most %d packets passed meanwhile", h.passed)
	}
	m.sendMoved(c, text, lacks)
	return nil
}

// writeHardwareContinuity writes to the mirror how the total of an offloaded flow goes on after a restart: from the
// shadow's count, where that is complete, otherwise from the last value. The shadow may miss packets from the next moment
// on: whether it was complete to the end, the next process asks the ledger.
func (m *mover) writeHardwareContinuity(c *flowState) error {
	if m.shadowComplete(c) {
		return m.writeContinuity(c, c.goesOn(besideHardware(c.shadow.Cookie), c.shadowBase))
	}
	c.stopFollowing()
	return m.writeContinuity(c, c.goesOn(c.hardware.Cookie, c.base))
}

// suspend takes a flow out of hardware that no other backend can count. The caller publishes its last sample, and then calls
// hold.
func (m *mover) suspend(ctx context.Context, c *flowState, why error) {
	if err := m.removeFromHardware(ctx, c); err != nil {
		m.log.Warn("removing a flow that waits for its device", "flow", c.Name, "err", err)
	}
	if err := m.joinShadow(ctx, c); err != nil {
		m.log.Warn("ending a count of some interfaces", "flow", c.Name, "err", err)
	}
	c.offloaded = false
	c.gone = why
}

// hold leaves a suspended flow at its last value, and shows that it has no source.
func (m *mover) hold(c *flowState) {
	m.plan.StopReading(c.handle)
	c.edit().source = dataplane.Source{}
	c.edit().rejected = m.stack.reasons(c, c.gone)
	m.sendMoved(c, fmt.Sprintf("nothing counts it: %v", c.gone), false)
	if err := m.writeSource(c); err != nil {
		m.log.Error("showing a flow's source in the mirror", "flow", c.Name, "err", err)
	}
}

// besideHardware marks the cookie of a slot: hardware counted the flow, and the slot counted beside it. Marking it twice gives
// the slot's cookie again.
func besideHardware(slot uint64) uint64 { return ^slot }

// goesOn returns the values from which the next process goes on with the total: the base of a slot, and the cookie of the
// slot.
func (c *flowState) goesOn(cookie uint64, base backend.Pair) shm.Continuity {
	past := c.past
	past.Cookie = cookie
	past.BasePackets = base.Packets
	past.BaseBytes = base.Bytes
	return past
}

// broken returns past with one more discontinuity, which stands for each loss until seen.
func broken(past shm.Continuity, seen backend.Moment) shm.Continuity {
	past.Discontinuities++
	past.Seen = uint32(seen)
	return past
}

// writeContinuity writes the source to the mirror, and how the total goes on. If it cannot write that, c stays as it was:
// a loss of a hook is declared the next time.
func (m *mover) writeContinuity(c *flowState, past shm.Continuity) error {
	if err := m.catalogue.SetContinuity(c.handle, past); err != nil {
		return err
	}
	c.past = past
	return m.writeSource(c)
}

// sendMoved sends an event: the flow's source now, why it changed, and whether the total may lack packets.
func (m *mover) sendMoved(c *flowState, why string, lacks bool) {
	m.log.Debug("source changed", "flow", c.Name, "source", c.source.String(), "why", why, "lacks", lacks)
	m.pending.send(moved(c, why, lacks))
}

// moved returns the event of sendMoved.
func moved(c *flowState, why string, lacks bool) dataplane.Event {
	text := c.source.String()
	if why != "" {
		text += ": " + why
	}
	if lacks {
		text += "; packets may be missing or counted twice"
	}
	return dataplane.Event{Kind: dataplane.SourceChanged, Object: c.Name, Text: text, Uncounted: dataplane.Uncounted{Unknown: lacks}}
}

// noteNeedsAlign notes that the total of an offloaded flow lacks packets that its shadow saw.
func (m *mover) noteNeedsAlign(c *flowState) {
	c.needsAlign = true
	m.awaitPause(c)
}

// awaitPause has the auditor look out for a pause of an offloaded flow.
func (m *mover) awaitPause(c *flowState) {
	if m.stack.audit && !slices.Contains(m.stack.toAlign, c) {
		m.stack.toAlign = append(m.stack.toAlign, c)
	}
}
