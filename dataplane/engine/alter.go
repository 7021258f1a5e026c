package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/shm"
)

// alteration is a flow of the set that becomes another one.
type alteration struct {
	c      *flowState
	to     backend.Placed
	rules  bool // its rules change
	relist bool // its entry in the mirror is made anew
	anew   bool // it counts other packets: its total begins at 0

	of     *flowState        // as newFlow made it: which backends may count it
	in     backend.Installed // set by prepare, where a backend that is no overlay has it
	at     backend.Moment    // set with in, by a SoftwareBackend: later outages are to be declared
	was    flowState         // as prepare left it
	handle shm.Handle        // of the entry that was made anew
	former *flowState        // where an earlier alteration is taken back: c as it was before
}

// alterations are flows that become others, all or none. The calls are prepare, finish, then end or undo. Backends
// may refuse in prepare. Methods are called with Engine.ctl held.
type alterations struct {
	e    *Engine
	list []*alteration
	ends []func(keep bool) error

	// Flows that come and go with the change. Where software has their rules, it exchanges those together with the rules of list.
	add, remove []*flowState
	installed   map[*flowState]backend.Installed // flows of add that are not in the stack, and have their rules
	left        []*flowState                     // flows of remove that have no rules any more
	restore     []*flowState                     // flows that had left in the change that this one takes back

	moved []*flowState // by prepare, out of hardware, with the flows that depend on them
	lent  []*flowState // flows that only hardware may count, and that XDP counts for the moment
	late  []*flowState // flows of add that may go to hardware only behind the change
	begun bool         // rules may have changed
	done  bool         // by finish
}

var errChanging = errors.New("it, or a flow that wins over it, is being changed")

// prepare moves flows whose rules change out of hardware, with the flows that depend on them, and
// changes the rules of the other backends. The total of each goes on.
func (a *alterations) prepare(ctx context.Context) error {
	err := a.e.ctl.Outside(func() error {
		for _, x := range a.list {
			if err := x.check(a.e); err != nil {
				return fmt.Errorf("flow %q: changing it: %w", x.c.Name, err)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := a.moveToShadows(ctx); err != nil {
		return err
	}
	return a.alterRules(ctx)
}

// check returns why a flow cannot be changed in its place.
func (x *alteration) check(e *Engine) error {
	x.of = e.placement.newFlow(x.to)
	c, of := x.c, x.of
	switch {
	case c.offload == nil:
		if open := e.placement.choices.of(x.to.Flow).open; of.offload != nil || !slices.Contains(open, c.backend) {
			return fmt.Errorf("%w: %s counts it, which backend %q does not allow; remove it in one call and add it in the next",
				dataplane.ErrUnplaced, c.backend.Name(), x.to.Backend)
		}
	case of.offload == nil:
		return fmt.Errorf("%w: backend %q does not count it here; remove it in one call and add it in the next", dataplane.ErrUnplaced, x.to.Backend)
	case x.anew && c.gone != nil:
		return fmt.Errorf("%w: its device is lost: %w; remove it in one call and add it in the next", dataplane.ErrUnplaced, c.gone)
	case x.rules && !c.hasShadow:
		return fmt.Errorf("%w: XDP, which counts it while its device changes, has no rules of it; remove it in one call and add it in the next", dataplane.ErrUnplaced)
	}
	return nil
}

// moveToShadows moves the flows whose rules change, and the flows that depend on them, to their shadows. No flow in
// hardware may lose against a flow that XDP counts. Until arrange, none of them goes to hardware.
func (a *alterations) moveToShadows(ctx context.Context) error {
	s := a.e.mover.stack
	if s == nil {
		return nil
	}
	refused := make(map[*flowState]error)
	refuse := func(c *flowState) {
		if c.offloaded && refused[c] == nil {
			a.moved = append(a.moved, c)
		}
		refused[c] = errChanging
	}
	for _, x := range a.list {
		if x.c.offload == nil || !x.rules {
			continue
		}
		refuse(x.c)
		s.related.Overlapping(&x.to.Flow, func(o *flowState) {
			if backend.ByPrecedence(x.to, o.Placed) < 0 {
				refuse(o)
			}
		})
	}
	a.keepOut(refused)
	defer a.keepOutRemoved()
	if len(a.moved) == 0 {
		return nil
	}
	all, inHardware, why := s.reassign(a.moved, refused)
	a.moved = all
	for _, c := range all {
		if !inHardware[c] && c.hasShadow && !c.allowsSoftware {
			c.allowsSoftware = true
			a.lent = append(a.lent, c)
		}
	}
	if err := s.possible(all, inHardware, why); err != nil {
		return err
	}

	// Each flow that leaves hardware has to be at its shadow afterwards. A flow that waited for its device already may wait on.
	leave := slices.DeleteFunc(slices.Clone(all), func(c *flowState) bool { return !c.offloaded || c.gone != nil || inHardware[c] })
	a.e.arranger.moveToSoftware(ctx, all, inHardware, why)
	for _, c := range leave {
		if c.offloaded || c.gone != nil {
			return fmt.Errorf("flow %q: %w: it could not be moved to XDP for the time of the change", c.Name, dataplane.ErrUnplaced)
		}
	}
	return nil
}

// keepOut keeps flows out of hardware until arrange: those of refused, and those of add that lose against a changed flow or
// against one that is kept out.
func (a *alterations) keepOut(refused map[*flowState]error) {
	out := flow.NewIndex(func(f *backend.Placed) *flow.Flow { return &f.Flow })
	for _, x := range a.list {
		if x.c.offload != nil && x.rules {
			out.Add(&x.to)
		}
	}
	for c := range refused {
		out.Add(&c.Placed)
	}

	for _, c := range slices.SortedFunc(slices.Values(a.add), byPrecedence) {
		if c.offload == nil {
			continue
		}
		loses := false
		out.Overlapping(&c.Flow, func(f *backend.Placed) { loses = loses || backend.ByPrecedence(*f, c.Placed) < 0 })
		if !loses {
			continue
		}
		refused[c] = errChanging
		out.Add(&c.Placed)
		if a.late = append(a.late, c); !c.allowsSoftware {
			c.allowsSoftware = true
			a.lent = append(a.lent, c)
		}
	}
	a.e.arranger.out = refused
}

// keepOutRemoved keeps flows out of hardware that are to be removed, and that hardware does not count. In hardware they would
// win over flows that have passed them.
func (a *alterations) keepOutRemoved() {
	for _, c := range a.remove {
		if c.offload != nil && !c.offloaded {
			a.e.arranger.out[c] = errChanging
		}
	}
}

// alterRules changes the rules of each backend, except in hardware.
func (a *alterations) alterRules(ctx context.Context) error {
	a.begun = true
	by := make(map[backend.Backend][]*alteration)
	for _, x := range a.list {
		b := x.c.backend
		if x.c.offload != nil {
			if b = a.e.mover.stack.software; !x.c.hasShadow {
				continue
			}
		}
		by[b] = append(by[b], x)
	}
	for _, b := range a.e.backends {
		if len(by[b]) == 0 {
			continue
		}
		if err := a.alterIn(ctx, b, by[b]); err != nil {
			return err
		}
	}
	for _, x := range a.list {
		x.keep()
	}
	return nil
}

// keep keeps the flow as it is, for undo.
func (x *alteration) keep() {
	if x.was.shown == nil {
		x.was = *x.c
		x.c.held = true // by x.was
	}
}

// before returns the flow as it was before the change.
func (x *alteration) before() backend.Placed {
	if x.was.shown == nil {
		return x.c.Placed
	}
	return x.was.Placed
}

// alterIn changes the rules of flows in one backend. Software gets the flows that come and go in the same call: between two calls
// packets would count for flows that win in neither set.
func (a *alterations) alterIn(ctx context.Context, b backend.Backend, list []*alteration) error {
	u, ok := b.(backend.Alterer)
	if !ok {
		return fmt.Errorf("flow %q: %w: backend %s cannot change it; remove it in one call and add it in the next", list[0].c.Name, dataplane.ErrUnplaced, b.Name())
	}

	ch := backend.Change{Was: make([]backend.Placed, len(list)), Now: make([]backend.Placed, len(list))}
	for i, x := range list {
		ch.Was[i], ch.Now[i] = x.c.Placed, x.to
	}
	s, hasHooks := b.(backend.SoftwareBackend)
	var come, leave []*flowState
	var before backend.Moment
	if hasHooks {
		if slices.ContainsFunc(list, func(x *alteration) bool { return x.rules }) {
			come, leave = a.comingTo(s), a.leaving(s)
			ch.Add, ch.Leave, ch.Return = placedOf(come), placedOf(leave), placedOf(a.restore)
			ch.Shadows = a.e.mover.stack != nil
		}
		before = s.Now()
	}

	var in []backend.Installed
	var end func(keep bool) error
	alter := func() (err error) { in, end, err = u.Alter(ctx, ch); return err }
	err := a.e.ctl.Outside(alter)
	if err != nil && len(come) > 0 && a.e.refused.lenient(ctx, err) {
		// install finds out which of them are refused. Until then packets count without them, hence tried.
		a.e.refused.tried = append(a.e.refused.tried, ch.Add...)
		come, ch.Add = nil, nil
		err = a.e.ctl.Outside(alter)
	}
	if err == nil || errors.Is(err, backend.ErrUndone) {
		a.left = leave
	}
	if err != nil {
		return fmt.Errorf("changing %s in %s: %w", backend.Describe(ch.Was), b.Name(), err)
	}

	a.ends = append(a.ends, func(keep bool) error { return a.e.ctl.Outside(func() error { return end(keep) }) })
	for i, x := range list {
		x.keep()
		x.in = in[i]
		if hasHooks {
			x.at = beganAt(s, x.to, before)
		}
	}
	for i, c := range come {
		a.noteInstalled(c, b, in[len(list)+i])
	}
	return nil
}

// comingTo lists the flows of add that u is to have rules of, and no other backend may take before it.
func (a *alterations) comingTo(u backend.SoftwareBackend) (come []*flowState) {
	for _, c := range a.add {
		if c.offload != nil {
			if a.e.mover.stack.software == u && !c.noShadow {
				come = append(come, c)
			}
			continue
		}
		if open := a.e.placement.choices.of(c.Flow).open; len(open) == 1 && open[0] == backend.Backend(u) {
			come = append(come, c)
		}
	}
	return come
}

// noteInstalled notes that software has the rules of a flow that is being added.
func (a *alterations) noteInstalled(c *flowState, u backend.Backend, in backend.Installed) {
	if c.offload != nil {
		c.shadow, c.hasShadow = in, true
		return
	}
	if a.installed == nil {
		a.installed = make(map[*flowState]backend.Installed)
	}
	a.installed[c] = in
	c.backend = u
}

// leaving lists the flows of remove that u counts, and that would win for a moment although they win in neither set: packets of
// a changed flow, which has won over them, or of another flow that leaves. The others count until they are removed, which is
// last.
func (a *alterations) leaving(u backend.SoftwareBackend) (list []*flowState) {
	out := flow.NewIndex(func(f *backend.Placed) *flow.Flow { return &f.Flow })
	for _, x := range a.list {
		if x.rules {
			out.Add(&x.c.Placed)
		}
	}
	for _, c := range slices.SortedFunc(slices.Values(a.remove), byPrecedence) {
		if c.backend != backend.Backend(u) || c.offload != nil && c.gone != nil {
			continue
		}
		loses := false
		out.Overlapping(&c.Flow, func(f *backend.Placed) { loses = loses || backend.ByPrecedence(*f, c.Placed) < 0 })
		if loses {
			out.Add(&c.Placed)
			list = append(list, c)
		}
	}
	return list
}

// beganAt returns the moment from which on outages concern a total of f whose counting began between before and now.
//
// That is now, unless f had an outage since before, which is still to be declared. A change that attaches programs moves the
// clock: with before, the next start would take the slot for one whose hooks came later.
func beganAt(s backend.SoftwareBackend, f backend.Placed, before backend.Moment) backend.Moment {
	now := s.Now()
	if last, open := s.Outage(f); open || last.After(before) {
		return before
	}
	return now
}

// finish brings the mirror, the engine and the overlay to where the rules are. An error leaves the flows as prepare did. Only
// hardware may count unplaced flows, and refuses them; they are flows of add, without which the change may go on.
func (a *alterations) finish(ctx context.Context) (unplaced map[*flowState]error, err error) {
	if len(a.list) == 0 {
		return nil, nil
	}
	if err := a.relist(); err != nil {
		return nil, err
	}
	a.enact()
	a.done = true
	if err := a.arrange(ctx); err != nil {
		return nil, err
	}

	unplaced = make(map[*flowState]error)
	for _, c := range a.affected() {
		if c.allowsSoftware || c.offloaded || c.gone != nil {
			continue
		}
		err := fmt.Errorf("flow %q: %w", c.Name, dataplane.ErrUnplaced)
		for _, r := range c.rejected {
			err = fmt.Errorf("%w: %s: %s", err, r.Backend, r.Reason)
		}
		if !slices.Contains(a.late, c) || !a.e.refused.lenient(ctx, err) {
			return nil, err
		}
		unplaced[c] = err
	}
	return unplaced, nil
}

// affected lists the flows that may have to move.
func (a *alterations) affected() []*flowState {
	removed := make(map[*flowState]bool, len(a.remove))
	for _, c := range a.remove {
		removed[c] = true
	}
	out := slices.DeleteFunc(slices.Concat(a.moved, a.late), func(c *flowState) bool { return a.e.flows[c.Name] != c || removed[c] })
	for _, x := range a.list {
		if x.c.offload != nil {
			out = append(out, x.c)
		}
	}
	return out
}

// arrange brings all flows that were moved to where they are to be counted.
func (a *alterations) arrange(ctx context.Context) error {
	for _, c := range a.lent {
		c.allowsSoftware = false
	}
	a.lent = nil
	if a.e.arranger.out = nil; a.done && a.e.mover.stack != nil {
		a.e.arranger.out = make(map[*flowState]error, len(a.remove))
		a.keepOutRemoved()
	}
	seeds := a.affected()
	if len(seeds) == 0 {
		return nil
	}
	return a.e.arranger.arrange(ctx, nil, append(seeds, losers(seeds)...))
}

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
			c.id, c.edit().source = x.in.ID, x.in.Source
		} else {
			e.mover.stack.denied.drop(c)
			c.above, c.below, c.unsorted = nil, nil, false
			c.allowsHardware, c.allowsSoftware, c.refusals = of.allowsHardware, of.allowsSoftware, of.refusals
			if x.rules && !c.offloaded {
				c.edit().rejected = of.rejected
			}
			if c.hasShadow {
				c.shadow.ID, c.shadow.Source = x.in.ID, x.in.Source
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
	c.past, c.base, c.slot = x.past(), backend.Pair{}, x.in.Cookie
	if x.former != nil {
		c.base = x.former.base
	}
	if c.offload != nil {
		c.shadow.Cookie, c.shadowBase, c.needsAlign, c.lastIdle, c.differs = x.in.Cookie, c.base, false, idleSample{}, ""
	}
}

// end frees the rules and counters that only the flows of before needed.
func (a *alterations) end() {
	for _, end := range a.ends {
		if err := end(true); err != nil {
			a.e.log.Error("giving up rules and counters that flows had before a change", "err", err)
		}
	}
}

// undo brings the flows back.
func (a *alterations) undo(ctx context.Context) error {
	if !a.done {
		var errs []error
		for _, end := range slices.Backward(a.ends) {
			errs = append(errs, end(false))
		}
		return errors.Join(append(errs, a.arrange(ctx))...)
	}
	back := &alterations{e: a.e, restore: a.left}
	for _, x := range a.list {
		y := &alteration{c: x.c, to: x.was.Placed, rules: x.rules, relist: x.relist, anew: x.anew}
		if x.anew {
			y.former = &x.was
		}
		back.list = append(back.list, y)
	}
	err := back.prepare(ctx)
	if err == nil {
		_, err = back.finish(ctx)
	}
	if err == nil || back.done { // after an error behind done, the flows are as before, but one of them found no place
		back.end()
		a.end()
	}
	if err != nil {
		return fmt.Errorf("changing flows back: %w", err)
	}
	return nil
}
