package engine

import (
	"slices"

	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/shm"
)

// relist gives new entries to flows whose name, labels or class changes, or whose total begins at 0, and removes the old ones in the
// same step. Totals that go on are in the new entries.
func (a *alterations) relist() error {
	e := a.e
	var list []*alteration
	var old []shm.Handle
	var entries []shm.Entry
	var goesOn []bool
	_ = e.ctl.Outside(func() error {
		list = slices.DeleteFunc(slices.Clone(a.list), func(x *alteration) bool { return !x.relist })
		old = make([]shm.Handle, len(list))
		entries = make([]shm.Entry, len(list))
		goesOn = make([]bool, len(list))
		for i, x := range list {
			old[i] = x.c.handle
			entries[i] = entryOf(x.to.Flow)
			goesOn[i] = !x.anew
		}
		e.catalogue.Reserve(entries)
		return nil
	})
	if len(list) == 0 {
		return nil
	}

	// Copy the records now, one by one with pauses for readers, because copying takes time. From Exchange until enact has updated
	// all flows, the mirror and the flows differ, so no reader may come in.
	for _, x := range list {
		e.ctl.Pause()
		x.c.edit()
	}
	// Read the totals only now: in a pause the watcher may have declared a loss.
	for i, x := range list {
		x.setTotal(&entries[i])
	}
	e.pending.names = slices.Grow(e.pending.names, 2*len(a.list))
	handles, err := e.catalogue.Exchange(old, entries, goesOn)
	if err != nil {
		return err
	}
	for i, x := range list {
		x.handle = handles[i]
	}
	return nil
}

// setTotal writes the source and the total to the new entry of a flow.
func (x *alteration) setTotal(entry *shm.Entry) {
	c := x.c
	source := c.source
	entry.Continuity = c.past
	if x.anew {
		source = x.in.Source
		entry.Continuity = x.past()
	}
	lost := c.isDownAt(source)
	entry.Source = source.String()
	entry.ByteBasis = c.basis
	entry.Valid = !lost
	entry.Stale = lost
}

// past returns the continuity of a flow that counts other packets than before.
func (x *alteration) past() shm.Continuity {
	if x.former == nil {
		return shm.Continuity{Cookie: x.in.Cookie, Seen: uint32(x.at)}
	}
	past := x.former.past
	past.Discontinuities++ // its rules were missing for a while
	return past
}

// enact makes the flows what they become. It cannot fail.
func (a *alterations) enact() {
	e := a.e
	var stacked []*flowState
	for _, x := range a.list {
		if x.c.Name != x.to.Name {
			e.drop(x.c.Name)
		}
		if x.c.offload != nil {
			stacked = append(stacked, x.c)
		}
	}
	if len(stacked) > 0 {
		e.mover.stack.unrelate(stacked)
	}
	for _, x := range a.list {
		c, was := x.c, x.c.Placed
		if c.offload != nil && c.offloaded {
			e.mover.stack.hardware.Rename(was, x.to)
		}
		of := x.of
		c.edit().Placed = x.to
		e.put(c)
		if c.offload == nil {
			if was.Backend != c.Backend {
				c.edit().rejected = of.rejected
			}
			c.id = x.in.ID
			c.edit().source = x.in.Source
		} else {
			e.mover.stack.denied.drop(c)
			c.above = nil
			c.below = nil
			c.unsorted = false
			c.allowsHardware = of.allowsHardware
			c.allowsSoftware = of.allowsSoftware
			c.refusals = of.refusals
			if x.rules && !c.offloaded {
				c.edit().rejected = of.rejected
			}
			if c.hasShadow {
				c.shadow.ID = x.in.ID
				c.shadow.Source = x.in.Source
			}
			if c.backend == backend.Backend(e.mover.stack.software) && c.gone == nil {
				c.edit().source = x.in.Source
			}
		}
		x.updateTotal()
	}
	for _, x := range a.list {
		if x.anew {
			e.ctl.Pause()
			e.plan.SetSource(x.c.handle, x.c.backend, x.in.ID, x.c.base)
		}
	}
	if len(stacked) > 0 {
		e.mover.stack.relate(stacked)
	}
}

// updateTotal gives the flow its new entry, and the base of its total there.
func (x *alteration) updateTotal() {
	c := x.c
	if x.relist {
		c.edit().handle = x.handle
	}
	if !x.anew { // its past goes on, with any loss of a hook that is still to be declared
		return
	}
	c.past = x.past()
	c.base = backend.Pair{}
	c.slot = x.in.Cookie
	if x.former != nil {
		c.base = x.former.base
	}
	if c.offload != nil {
		c.shadow.Cookie = x.in.Cookie
		c.shadowBase = c.base
		c.needsAlign = false
		c.lastIdle = idleSample{}
		c.differs = ""
	}
}
