package engine

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/engine/catalogue"
	"github.com/flowtally/flowtally/dataplane/engine/control"
	"github.com/flowtally/flowtally/dataplane/engine/poll"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/shm"
)

// mover moves single flows between hardware and their shadows, and keeps their totals right. Callers hold Engine.ctl.
type mover struct {
	ctl       control.Lock
	stack     *stack // nil: no backend counts in hardware yet
	catalogue *catalogue.Catalogue
	plan      *poll.Plan
	pending   *pending
	log       *slog.Logger
	sleep     func(time.Duration) // time.Sleep, but in tests
}

// setActive calls SoftwareBackend.SetActive, and lets readers of ctl in meanwhile. So do countApart and removeFromHardware
// for the methods of their names.
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

// shadowComplete reports whether the shadow has seen every packet of the total. If hardware drops or steals the packets, the
// shadow sees none.
func (m *mover) shadowComplete(c *flowState) bool {
	if !c.hasShadow || !c.follows || c.hardware.Takes {
		return false
	}
	since, ok := m.stack.software.CompleteSince(c.Placed)
	return ok && !since.After(c.seen())
}

// shadowRead is a count of a shadow, with the time of the reading.
type shadowRead struct {
	backend.Pair
	at    backend.Moment
	first uint64 // packets by an earlier reading: those have passed the device before hardware began to count
}

// readShadows reads the shadows of some flows. Callers must read before hardware begins to count: whatever hardware counts
// later, the shadow sees after this reading.
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
		before[i].first = before[i].Packets
	}
	return before, nil
}

// readSentAgain reads the shadows of sent flows again after the wait for packets in flight, so that the totals have the packets that
// passed meanwhile. With audit there is no need: the next pause adds them, and exactly.
func (m *mover) readSentAgain(list []*flowState, before []shadowRead) {
	for i, c := range list {
		if !c.hasShadow || c.Direction != flow.Egress || m.stack.audit {
			continue
		}
		if now, err := backend.ReadOne(m.stack.software, c.shadow.ID); err == nil {
			before[i].Pair = now
		}
	}
}

// toSoftware moves a flow from hardware to its shadow. If the shadow has seen every packet, it knows the exact total.
// Otherwise the total goes on from the last value of hardware, with a discontinuity.
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
	// The total may lack packets since it went to hardware. Only with audit may it get them without a discontinuity.
	// We ask for the shadow now, because taking the flow out of hardware may take long.
	whole := m.shadowComplete(c) && (s.audit || !c.needsAlign)
	if !lost { // ChangeSource reads the last value of hardware below
		if err := m.removeFromHardware(ctx, c); err != nil {
			return fmt.Errorf("removing it from %s: %w", s.hardware.Name(), err)
		}
	}
	var exact, lacks bool
	err := m.plan.ChangeSource(c.handle, func(last backend.Pair) (backend.Counters, uint32, backend.Pair, error) {
		own, err := backend.ReadOne(s.software, c.shadow.ID)
		if err != nil {
			return nil, 0, backend.Pair{}, err
		}
		h := handover{last: last, complete: whole, sameBytes: c.basis == c.shadow.Basis}
		if c.follows { // only then is shadowBase valid
			h.bySlot = backend.Add(c.shadowBase, own)
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

// toHardware moves a flow that hardware counts already from its shadow to hardware. before is the count of the shadow from
// before hardware began to count.
func (m *mover) toHardware(c *flowState, before shadowRead) error {
	s := m.stack
	suspended := c.gone != nil
	h := handover{sameBytes: true} // the bytes of hardware come on top of those of the shadow
	if c.follows {
		h.bySlot = backend.Add(c.shadowBase, before.Pair)
	}
	if suspended {
		h.complete = m.shadowComplete(c)
	} else {
		h.complete = !c.missedPackets(s.software)
	}

	var lacks bool
	err := m.plan.ChangeSource(c.handle, func(last backend.Pair) (backend.Counters, uint32, backend.Pair, error) {
		// If the shadow was the source until now, readers have seen packets that hardware may have counted, too. What
		// they saw last must not become part of the base then.
		h.last = h.bySlot
		if suspended {
			h.last = last
		}
		if c.hasShadow {
			after, err := backend.ReadOne(s.software, c.shadow.ID)
			if err != nil {
				return nil, 0, backend.Pair{}, err
			}
			h.passed = after.Packets - before.first
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

// writeHardwareContinuity writes to the mirror how the next process goes on with the total of an offloaded flow: from the
// count of the shadow if that is complete, else from the last value. The shadow may miss packets later. We need not write
// that down: the next process asks the ledger.
func (m *mover) writeHardwareContinuity(c *flowState) error {
	if m.shadowComplete(c) {
		return m.writeContinuity(c, c.goesOn(besideHardware(c.shadow.Cookie), c.shadowBase))
	}
	c.stopFollowing()
	return m.writeContinuity(c, c.goesOn(c.hardware.Cookie, c.base))
}

// suspend takes a flow out of hardware although nothing else can count it. Callers publish its last sample next, and then
// call hold.
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

// hold freezes the total of a suspended flow, and shows readers that it has no source.
func (m *mover) hold(c *flowState) {
	m.plan.StopReading(c.handle)
	c.edit().source = dataplane.Source{}
	c.edit().rejected = m.stack.reasons(c, c.gone)
	m.sendMoved(c, fmt.Sprintf("nothing counts it: %v", c.gone), false)
	if err := m.writeSource(c); err != nil {
		m.log.Error("showing a flow's source in the mirror", "flow", c.Name, "err", err)
	}
}

// besideHardware returns the cookie of an entry that hardware counts while a slot in XDP counts the same packets. The same
// function turns it into the cookie of the slot again.
func besideHardware(slot uint64) uint64 { return ^slot }

// goesOn returns what the next process needs to go on with the total: the cookie of a slot, and the base of the total there.
func (c *flowState) goesOn(cookie uint64, base backend.Pair) shm.Continuity {
	past := c.past
	past.Cookie = cookie
	past.BasePackets = base.Packets
	past.BaseBytes = base.Bytes
	return past
}

// broken returns past with one more discontinuity, for all losses until seen.
func broken(past shm.Continuity, seen backend.Moment) shm.Continuity {
	past.Discontinuities++
	past.Seen = uint32(seen)
	return past
}

// writeContinuity writes to the mirror how the total goes on, and its source. On an error c is unchanged, so the next look
// declares the same loss again.
func (m *mover) writeContinuity(c *flowState, past shm.Continuity) error {
	if err := m.catalogue.SetContinuity(c.handle, past); err != nil {
		return err
	}
	c.past = past
	return m.writeSource(c)
}

// sendMoved sends the event of a new source: which, why, and whether the total may lack packets.
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

// noteNeedsAlign notes that the shadow of an offloaded flow saw packets that the total lacks.
func (m *mover) noteNeedsAlign(c *flowState) {
	c.needsAlign = true
	m.awaitPause(c)
}

// awaitPause makes the auditor look for a pause in the traffic of a flow. Without audit nothing happens.
func (m *mover) awaitPause(c *flowState) {
	if m.stack.audit && !slices.Contains(m.stack.toAlign, c) {
		m.stack.toAlign = append(m.stack.toAlign, c)
	}
}
