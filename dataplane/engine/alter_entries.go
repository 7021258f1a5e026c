package engine

import (
	"slices"

	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/shm"
)

// relist exchanges the entries of flows that get another name, other labels, another class or a total that begins
// at 0. The old entries are gone then. Totals that go on are in the new ones.
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

	// Copying a record takes time, so each is copied now, with a pause for readers. From Exchange until enact has updated all
	// flows there is none: the mirror and the flows differ.
	for _, x := range list {
		e.ctl.Pause()
		x.c.edit()
	}
	// The watcher may have declared a loss in a pause, so the totals are read only now.
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

// setTotal gives the flow's next entry in the mirror its source, and how the total goes on.
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

// past returns the past of a flow that counts other packets than before.
func (x *alteration) past() shm.Continuity {
	if x.former == nil {
		return shm.Continuity{Cookie: x.in.Cookie, Seen: uint32(x.at)}
	}
	past := x.former.past
	past.Discontinuities++ // its rules were out for a while
	return past
}

// enact gives the flows their new fields.
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

// updateTotal gives the flow its entry, and the total from which it goes on there.
func (x *alteration) updateTotal() {
	c := x.c
	if x.relist {
		c.edit().handle = x.handle
	}
	if !x.anew { // its hooks are the same: a loss of one is still to be declared
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
