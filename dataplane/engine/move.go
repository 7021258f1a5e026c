package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/shm"
)

// readOne reads one counter of a source that reads all of its counters at once.
func readOne(s backend.Counters, id uint32) (backend.Pair, error) {
	var p [1]backend.Pair
	err := s.Read([]uint32{id}, p[:])
	return p[0], err
}

// whole says whether the shadow has seen every packet that the total is made of. What
// takes packets away from it leaves it nothing to see.
func (e *Engine) whole(c *counted) bool {
	return c.hasUnder && c.epoch != 0 && !c.over.Takes && e.stack.under.Epoch(c.Placed) == c.epoch
}

// beside reads what the shadows of a list stand at, before the overlay counts too: from here
// on both do, and what the overlay has is never more than what the shadow sees.
func (e *Engine) beside(ctx context.Context, list []*counted) ([]backend.Pair, error) {
	s := e.stack
	before := make([]backend.Pair, len(list))
	if s.under == nil {
		return before, nil
	}
	if s.audit {
		if err := s.under.Serve(ctx, placedOf(list), true); err != nil {
			return nil, fmt.Errorf("counting beside %s, as rdma.audit asks for: %w", s.over.Name(), err)
		}
	}
	for i, c := range list {
		if !c.hasUnder {
			continue
		}
		if !c.published() || c.gone == nil {
			c.epoch = s.under.Epoch(c.Placed)
		}
		var err error
		if before[i], err = readOne(s.under, c.under.ID); err != nil {
			return nil, fmt.Errorf("flow %q: reading its shadow: %w", c.Name, err)
		}
	}
	return before, nil
}

// toUnder makes a flow's shadow its source. The total goes on from what the
// overlay had; what it lacks then is declared, exactly where the shadow has seen everything.
// With audit it goes on as the shadow has it, and lacks nothing.
func (e *Engine) toUnder(ctx context.Context, c *counted, why error) error {
	s, lost := e.stack, c.gone != nil
	if err := s.under.Serve(ctx, []backend.Placed{c.Placed}, true); err != nil {
		return err
	}
	if err := e.undivide(ctx, c); err != nil {
		return err
	}
	whole := e.whole(c)
	if !lost { // its counter is read to the end below
		if err := s.over.Remove(ctx, []backend.Placed{c.Placed}); err != nil {
			return fmt.Errorf("removing it from %s: %w", s.over.Name(), err)
		}
	}
	var lacks dataplane.Uncounted
	clean := false
	err := e.plan.ChangeSource(c.handle, func(stands backend.Pair) (backend.Counters, uint32, backend.Pair, error) {
		own, err := readOne(s.under, c.under.ID)
		if err != nil {
			return nil, 0, backend.Pair{}, err
		}
		truth := backend.Add(c.shadowBase, own)
		c.base = backend.Sub(stands, own)
		switch {
		case !whole || truth.Packets < stands.Packets:
			lacks.Unknown = true
		case s.audit:
			c.base, clean = c.shadowBase, c.basis == c.under.Basis
		default:
			d := backend.Sub(truth, stands)
			lacks.Packets, lacks.Bytes = d.Packets, d.Bytes
		}
		return s.under, c.under.ID, c.base, nil
	})
	if err != nil {
		return err
	}
	if lost {
		if err := s.over.Remove(ctx, []backend.Placed{c.Placed}); err != nil {
			e.log.Warn("letting go of a flow that its device lost", "flow", c.Name, "err", err)
		}
	}
	c.offloaded, c.gone = false, nil
	c.backend, c.basis, c.source = s.under, c.under.Basis, s.under.Source(c.Placed)
	c.shadowBase, c.epoch = c.base, s.under.Epoch(c.Placed)
	e.tell(c, fmt.Sprintf("%v", why), lacks)
	return e.settle(c, c.under.Cookie, c.base, !clean)
}

// toOver makes the overlay a flow's source: its shadow stood at before when the
// overlay did not count yet.
func (e *Engine) toOver(c *counted, before backend.Pair) error {
	s := e.stack
	var lacks dataplane.Uncounted
	stranded := c.gone != nil
	whole := stranded && e.whole(c)
	text := ""
	err := e.plan.ChangeSource(c.handle, func(stands backend.Pair) (backend.Counters, uint32, backend.Pair, error) {
		c.base = backend.Add(c.shadowBase, before)
		if stranded && (!whole || c.base.Packets < stands.Packets) {
			c.base, lacks.Unknown = stands, true
		}
		if !stranded {
			after, err := readOne(s.under, c.under.ID)
			if err != nil {
				return nil, 0, backend.Pair{}, err
			}
			if n := after.Packets - before.Packets; n > 0 {
				lacks.Unknown = true
				text = fmt.Sprintf("at most %d packets passed meanwhile", n)
			}
		}
		return s.over, c.over.ID, c.base, nil
	})
	if err != nil {
		return err
	}
	if stranded && !whole && c.hasUnder {
		c.shadowBase, c.epoch = backend.Sub(c.base, before), s.under.Epoch(c.Placed)
	}
	c.gone = nil
	c.backend, c.basis, c.source = s.over, c.over.Basis, c.over.Source
	if c.needsAlign = false; lacks.Unknown {
		e.noteNeedsAlign(c)
		c.past.Discontinuities++
	}
	e.tell(c, text, lacks)
	return nil
}

// settleOver writes down how the total of an overlay's flow goes on after a restart:
// as the shadow has it, where that is pinned and has seen everything, else from the
// last value.
func (e *Engine) settleOver(c *counted) error {
	if e.whole(c) {
		return e.settle(c, c.under.Cookie, c.shadowBase, false)
	}
	c.epoch = 0
	return e.settle(c, c.over.Cookie, c.base, false)
}

// strand leaves a flow that its device lost without a source, at its last value.
func (e *Engine) strand(ctx context.Context, c *counted, why error) {
	if err := e.stack.over.Remove(ctx, []backend.Placed{c.Placed}); err != nil {
		e.log.Warn("letting go of a flow that its device lost", "flow", c.Name, "err", err)
	}
	if err := e.undivide(ctx, c); err != nil {
		e.log.Warn("ending a count of some interfaces", "flow", c.Name, "err", err)
	}
	e.plan.Hold(c.handle)
	c.offloaded = false
	c.source = dataplane.Source{}
	c.rejected = e.stack.reasons(c, why)
	e.tell(c, fmt.Sprintf("nothing counts it: %v", why), dataplane.Uncounted{})
	if err := e.show(c); err != nil {
		e.log.Error("showing a flow's source in the mirror", "flow", c.Name, "err", err)
	}
}

// settle writes the source, and what the next process needs to go on with the total.
func (e *Engine) settle(c *counted, cookie uint64, base backend.Pair, broken bool) error {
	c.past.Cookie, c.past.BasePackets, c.past.BaseBytes = cookie, base.Packets, base.Bytes
	if broken {
		c.past.Discontinuities++
	}
	return errors.Join(e.spared(e.writer.SetContinuity(c.handle, c.past)), e.show(c))
}

// tell says what counts a flow now, why, and what its total lacks.
func (e *Engine) tell(c *counted, why string, lacks dataplane.Uncounted) {
	text := c.source.String()
	if why != "" {
		text += ": " + why
	}
	switch {
	case lacks.Unknown:
		text += "; packets may have passed uncounted"
	case lacks.Packets > 0:
		text += fmt.Sprintf("; %d packets (%d bytes) passed uncounted", lacks.Packets, lacks.Bytes)
	}
	e.log.Debug("source changed", "flow", c.Name, "source", c.source.String(), "why", why,
		"uncounted", lacks.Packets, "unknown", lacks.Unknown)
	e.events.publish(dataplane.Event{Kind: dataplane.SourceChanged, Object: c.Name, Text: text, Uncounted: lacks})
}

// publishUnder gives a fresh flow its entry in the mirror, counted by its
// shadow. Where flows had to leave the overlay for it, they counted its packets until now.
func (e *Engine) publishUnder(c *counted, displaced bool) error {
	s := e.stack
	c.backend, c.basis, c.source = s.under, c.under.Basis, s.under.Source(c.Placed)
	own, err := readOne(s.under, c.under.ID)
	if err != nil {
		return err
	}
	c.handle, c.past, err = e.entry(entryOf(c.Flow), []uint64{c.under.Cookie}, func(old *inherited) (shm.Continuity, error) {
		past, err := e.carryOn(s.under, old, c.under)
		if displaced && !c.under.Adopted {
			past.BasePackets, past.BaseBytes = past.BasePackets-own.Packets, past.BaseBytes-own.Bytes
		}
		return past, err
	})
	if err != nil {
		return err
	}
	c.base = backend.Pair{Packets: c.past.BasePackets, Bytes: c.past.BaseBytes}
	c.shadowBase, c.epoch = c.base, s.under.Epoch(c.Placed)
	if err := e.show(c); err != nil {
		return err
	}
	e.plan.SetSource(c.handle, s.under, c.under.ID, c.base)
	return nil
}

// publishOver gives a fresh flow its entry in the mirror, counted by the overlay. If
// an earlier process left its shadow pinned, with a total that it knew, that is the total.
func (e *Engine) publishOver(c *counted, before backend.Pair) error {
	c.backend, c.basis, c.source = e.stack.over, c.over.Basis, c.over.Source
	known := false
	var err error
	c.handle, c.past, err = e.entry(entryOf(c.Flow), []uint64{c.under.Cookie, c.over.Cookie}, func(old *inherited) (shm.Continuity, error) {
		if old != nil && c.hasUnder && old.Continuity.Cookie == c.under.Cookie && !c.under.Gap {
			known = true
			return old.Continuity, nil
		}
		return e.carryOn(e.stack.over, old, backend.Installed{Cookie: c.over.Cookie})
	})
	if err != nil {
		return err
	}
	c.base = backend.Pair{Packets: c.past.BasePackets, Bytes: c.past.BaseBytes}
	if known {
		c.shadowBase, c.base = c.base, backend.Add(c.base, before)
	} else {
		c.shadowBase = backend.Sub(c.base, before)
	}
	if c.hasUnder {
		after, err := readOne(e.stack.under, c.under.ID)
		if err != nil {
			return err
		}
		if c.needsAlign = false; after != before {
			e.noteNeedsAlign(c)
			if known {
				c.past.Discontinuities++
				e.log.Warn("packets passed while a total was taken up in hardware", "flow", c.Name, "at_most", after.Packets-before.Packets)
			}
		}
	}
	e.plan.SetSource(c.handle, e.stack.over, c.over.ID, c.base)
	return nil
}
