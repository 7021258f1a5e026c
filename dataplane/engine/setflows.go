package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	setchange "github.com/flowtally/flowtally/dataplane/engine/change"
	"github.com/flowtally/flowtally/dataplane/engine/control"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/shm"
)

// change is one change of the set of flows. It can be applied once. Callers hold Engine.ctl.
type change struct {
	e          *Engine
	add        []backend.Placed
	alter      []*alteration
	remove     []*flowState
	list       []string              // the names of the set after the change, in the order of its flows; nil: added flows come last
	keepOthers bool                  // as of SetOptions
	given      []flow.Flow           // to SetFlows
	interfaces []dataplane.Interface // after the change; nil: they stay
	config     *dataplane.Config     // the settings after the change; nil: they stay
	added      []*flowState          // the flows of add
	altering   *alterations          // the flows of alter
}

// apply makes the whole change, or undoes it; commit decides. It alters and adds flows first, and removes flows last. So whatever a
// device or a table may refuse comes before the steps that cannot be undone.
func (ch *change) apply(ctx context.Context, commit *control.Commit) (err error) {
	e := ch.e
	was := e.cfg
	if ch.config != nil {
		e.configure(*ch.config)
		defer func() {
			if err != nil {
				e.configure(was)
			}
		}()
	}
	if !e.catalogue.Inheriting() && len(ch.add)+len(ch.alter)+len(ch.remove) > 0 {
		e.noteChange(true) // until the watcher notes that no call is under way
	}

	ch.added = make([]*flowState, len(ch.add))
	for i, p := range ch.add {
		ch.added[i] = e.placement.newFlow(p)
	}

	alter := &alterations{e: e, list: ch.alter, remove: ch.remove}
	ch.altering = alter
	stays := context.WithoutCancel(ctx)
	starting := e.catalogue.Inheriting()
	if err := ch.carryOut(ctx, alter, was.Interfaces, commit); err != nil {
		if starting { // undo nothing: the next start needs the entries that this one has inherited
			return err
		}
		undone := ch.inForce(alter, errors.Is(err, backend.ErrUndone))
		return errors.Join(err, ch.uninstall(stays, ch.added), alter.undo(stays), ch.giveInterfaces(was.Interfaces), undone.declare(e))
	}

	alter.end()
	if err := (undone{flows: e.refused.tried}).declare(e); err != nil {
		e.log.Error("declaring losses to flows that were refused", "err", err)
	}
	ch.noteOrder()
	if ch.interfaces != nil && !starting {
		e.watcher.arrange(stays) // now, so that the sources are right when the call returns
		e.watcher.showSources()
	}
	return nil
}

// carryOut makes the change step by step, up to the first error. was are the interfaces from before the change.
func (ch *change) carryOut(ctx context.Context, alter *alterations, was []dataplane.Interface, commit *control.Commit) error {
	// Until the change is complete, flows may be on new interfaces and on old ones.
	if err := ch.giveInterfaces(both(ch.interfaces, was)); err != nil {
		return err
	}
	if e := ch.e; e.refused.goOn {
		r := newRoom(e)
		ch.refuseBeyond(r)
		defer r.entries.Note()
	}
	alter.add = ch.added
	if err := alter.prepare(ctx); err != nil {
		return err
	}
	if err := ch.install(ctx, alter.installed); err != nil {
		return err
	}

	// From here on the change stays, even if its caller gives up.
	if err := commit.Keep(ctx); err != nil {
		return err
	}
	ctx = context.WithoutCancel(ctx)
	unplaced, err := alter.finish(ctx)
	if err != nil {
		return err
	}
	if err := ch.refuse(ctx, unplaced); err != nil {
		return err
	}
	if err := ch.giveInterfaces(ch.interfaces); err != nil {
		return err
	}
	return ch.removeFlows(ctx)
}

// giveInterfaces makes the backends count on the interfaces of list, if the change has interfaces at all.
func (ch *change) giveInterfaces(list []dataplane.Interface) error {
	if ch.interfaces == nil {
		return nil
	}
	return ch.e.giveInterfaces(list)
}

// report shows the change to readers. Then it logs each removed and each added flow, and sends an event for each. Callers let readers
// in meanwhile, so report must not change anything that ctl guards.
func (ch *change) report() {
	e := ch.e
	e.commit()
	for _, c := range ch.remove {
		e.log.Info("flow removed", "flow", c.Name)
		e.events.Send(dataplane.FlowRemoved, c.Name, c.Flow.Identity())
	}
	for _, c := range ch.added {
		e.log.Info("flow added", "flow", c.Name, "backend", c.source.Backend, "device", c.source.DeviceNames(), "mode", c.source.Modes())
		e.events.Send(dataplane.FlowAdded, c.Name, c.Flow.Identity())
	}
}

// noteChange notes beside the pins whether a change is under way. If we are killed in a change, the next start finds the note.
func (e *Engine) noteChange(underWay bool) {
	for _, b := range e.backends {
		if n, is := b.(backend.ChangeNoter); is {
			n.NoteChange(underWay)
		}
	}
}

// install has the added flows counted, and makes them flows of the set. installed has the slots of those that XDP has by now. After
// an error callers must call uninstall.
func (ch *change) install(ctx context.Context, installed map[*flowState]backend.Installed) error {
	e := ch.e
	beyond := len(ch.add) - len(ch.added) // refuseBeyond has found no room for these
	known := len(e.refused.flows)
	plain := slices.DeleteFunc(slices.Clone(ch.added), func(c *flowState) bool { return c.offload != nil })
	ch.added = append(plain, slices.DeleteFunc(slices.Clone(ch.added), func(c *flowState) bool { return c.offload == nil })...)
	stacked := ch.added[len(plain):] // installStacked replaces some
	// installStacked may install halves one after the other. In order of precedence no half wins packets of an earlier one, which
	// hardware would count already.
	slices.SortFunc(stacked, byPrecedence)
	e.adding = ch.added // after an error, until uninstall has removed their entries
	if err := e.placement.place(ctx, plain, installed); err != nil {
		return err
	}
	if err := ch.installStacked(ctx, stacked); err != nil {
		return err
	}
	ch.added = slices.DeleteFunc(ch.added, func(c *flowState) bool { return e.refused.flows[c.Name] != nil })
	if beyond > 0 && len(e.refused.flows) > known { // the attempt has refused more flows, so there may be room for some again
		e.refused.again = true
	}
	slices.SortFunc(ch.added, func(a, b *flowState) int { return cmp.Compare(a.Order, b.Order) })
	for _, c := range ch.added {
		e.put(c)
	}
	e.adding = nil
	return nil
}

// installStacked adds flows to the stack. If a start goes on without refused flows, it finds them by halving the list. The shadows
// of all flows stay meanwhile: some are slots that an earlier process has left, and their counts would be lost.
func (ch *change) installStacked(ctx context.Context, flows []*flowState) error {
	e := ch.e
	err := e.placement.placeOffload(ctx, flows)
	if err == nil || !e.refused.lenient(ctx, err) {
		return err
	}
	again := make([]*flowState, len(flows))
	for i, c := range flows {
		n := e.placement.newFlow(c.Placed)
		if c.noShadow {
			n.noShadow = true
			n.refusals = c.refusals
		}
		if c.hasShadow && len(flows) > 1 && e.catalogue.Inheriting() {
			n.shadow = c.shadow
			n.hasShadow = true
			c.hasShadow = false
			n.shadow.Gap = c.shadow.Gap || c.hardware.Takes
		}
		ch.altering.replace(c, n)
		if again[i] = n; c.hasShadow {
			e.refused.tried = append(e.refused.tried, c.Placed)
		}
	}
	if err := ch.uninstall(ctx, flows); err != nil {
		return err
	}
	if len(flows) == 1 {
		e.refused.add(flows[0], err)
		return nil
	}
	half := copy(flows, again) / 2
	if err := ch.installStacked(ctx, flows[:half]); err != nil {
		return err
	}
	return ch.installStacked(ctx, flows[half:])
}

// uninstall removes added flows, and moves the flows that made room for them back.
func (ch *change) uninstall(ctx context.Context, flows []*flowState) error {
	e := ch.e
	var errs []error
	for _, c := range flows {
		e.ctl.Pause()
		if c.published() { // so it has an entry in the mirror
			errs = append(errs, e.catalogue.GiveBack(c.handle))
			c.edit().handle = shm.Handle{}
		}
		if e.flows[c.Name] == c {
			e.drop(c.Name)
		}
	}
	taken := slices.DeleteFunc(slices.Clone(flows), func(c *flowState) bool { return c.offload == nil || !c.offloaded })
	errs = append(errs, e.placement.uninstall(ctx, flows))
	e.mover.declareTaken(taken)
	return errors.Join(append(errs, e.placement.removeFromStack(ctx, flows, len(taken)))...)
}

// refuse removes added flows again, and adds them to the refused ones. The change goes on without them.
func (ch *change) refuse(ctx context.Context, flows map[*flowState]error) error {
	if len(flows) == 0 {
		return nil
	}
	list := slices.SortedFunc(maps.Keys(flows), byPrecedence)
	for _, c := range list {
		ch.e.refused.add(c, flows[c])
		ch.e.refused.tried = append(ch.e.refused.tried, c.Placed)
	}
	if err := ch.uninstall(ctx, list); err != nil {
		return err
	}
	ch.added = slices.DeleteFunc(ch.added, func(c *flowState) bool { return flows[c] != nil })
	ch.e.refused.again = true // there may be room for others now
	return nil
}

// removeFlows stops counting the removed flows: all, or none if it returns an error.
func (ch *change) removeFlows(ctx context.Context) error {
	if len(ch.remove) == 0 {
		return nil
	}
	e := ch.e
	// Uninstall comes before forget. If the backend cannot remove a flow, it stays a flow. If we are killed in between, its entry
	// goes on from the last total. Until forget the poller reads the slot, which no other flow can get while we hold ctl.
	room := countOffloaded(ch.remove)
	if err := e.placement.uninstall(ctx, ch.remove); err != nil {
		return errors.Join(err, e.arranger.arrange(ctx, nil, nil))
	}
	e.arranger.out = nil
	var errs []error
	for _, c := range ch.remove {
		e.ctl.Pause()
		errs = append(errs, e.forget(c))
	}
	if err := errors.Join(append(errs, e.placement.removeFromStack(ctx, ch.remove, room))...); err != nil {
		e.log.Error("cleaning up after removed flows", "err", err)
	}
	return nil
}

// noteOrder gives all flows of the set their places after the change, refused ones included. A flow that an earlier change refused
// keeps its place, unless the given flows go before all others: then it goes behind them.
func (ch *change) noteOrder() {
	e := ch.e
	list := ch.list
	if list == nil || ch.keepOthers {
		list = make([]string, len(ch.add))
		for i, p := range ch.add {
			list[i] = p.Name
		}
	}
	listed := make(map[string]bool, len(list))
	for _, name := range list {
		listed[name] = true
		if c := e.flows[name]; c != nil {
			c.place = e.place
		} else if x := e.refused.flows[name]; x != nil {
			e.refused.put(x.at(e.place, x.Order))
		}
		e.place++
	}
	for _, p := range ch.add {
		e.order = max(e.order, p.Order+1)
	}
	for _, f := range ch.given {
		if c := e.flows[f.Name]; c != nil {
			c.added = false
		}
	}
	for _, x := range ch.alter {
		e.order = max(e.order, x.to.Order+1)
	}
	if ch.list == nil || ch.keepOthers {
		return
	}
	for _, x := range e.refused.inOrder() {
		if !listed[x.Name] {
			e.refused.put(x.at(e.place, e.order))
			e.place++
			e.order++
		}
	}
}

// announce logs the changed and renamed flows, and sends an event for each.
func (ch *change) announce(d dataplane.Difference) {
	for _, s := range d.Settings {
		ch.e.log.Info("setting changed", "setting", s.Field, "from", s.From, "to", s.To)
	}
	d.Settings = nil
	for line := range strings.Lines(d.String()) {
		if line, changed := strings.CutPrefix(line, "~ "); changed {
			name, text, _ := strings.Cut(strings.TrimSpace(line), ": ")
			ch.e.log.Info("flow changed", "flow", name, "change", text)
			ch.e.events.Send(dataplane.FlowChanged, name, text)
		}
	}
}

// newChange returns the change from the set in force to the given flows, and the difference between the two.
func newChange(e *Engine, flows []flow.Flow, opts dataplane.SetOptions) (dataplane.Difference, *change, error) {
	ch := &change{e: e}
	there := slices.SortedFunc(maps.Values(e.flows), func(a, b *flowState) int { return cmp.Compare(a.place, b.place) })
	if opts.KeepAdded {
		opts.Keep = slices.Clone(opts.Keep)
		for _, c := range there {
			if c.added {
				opts.Keep = append(opts.Keep, c.Name)
			}
		}
	}
	d, plan, err := setchange.New(placedOf(there), e.order, flows, opts)
	if err == nil && opts.Config != nil {
		err = ch.settings(*opts.Config, &d)
	}
	if err == nil && ch.interfaces == nil {
		err = e.allow(flows, e.cfg.Interfaces)
	} else if err == nil {
		left := stay(there, plan, flows)
		if err = e.allow(left, ch.interfaces); err == nil && len(left) > 0 {
			err = ch.checkInterfaces()
		}
	}
	if err != nil {
		return dataplane.Difference{}, ch, err
	}
	if !opts.KeepOthers {
		d.Removed = slices.Sorted(slices.Values(append(d.Removed, e.refused.unset(flows, opts.Keep)...)))
	}
	ch.add = plan.Add
	ch.list = plan.List
	ch.given = flows
	ch.keepOthers = opts.KeepOthers
	for _, x := range plan.Alter {
		ch.alter = append(ch.alter, &alteration{c: e.flows[x.Name], to: x.To, rules: x.Rules, relist: x.Relist, anew: x.Anew})
	}
	for _, name := range plan.Remove {
		ch.remove = append(ch.remove, e.flows[name])
	}
	return d, ch, nil
}

// settings adds to the difference and to the change the settings that differ.
func (ch *change) settings(want dataplane.Config, d *dataplane.Difference) (err error) {
	want.Flows = nil
	if err := want.Validate(); err != nil {
		return fmt.Errorf("configuration: %w: %w", dataplane.ErrInvalid, err)
	}
	from, reserved := ch.e.cfg, ch.e.Set.List()
	want = withDefaults(want)
	called := func(name string) bool { // ReserveWords or ReleaseWords has changed it since, so it differs from the file on purpose
		is := slices.ContainsFunc(reserved, func(w dataplane.ReservedWords) bool { return w.Name == name })
		return slices.Contains(ch.e.cfg.Words, name) != is
	}
	from.Words = slices.DeleteFunc(slices.Clone(from.Words), called)
	want.Words = slices.DeleteFunc(slices.Clone(want.Words), called)
	if d.Settings, err = setchange.Settings(from, want); len(d.Settings) > 0 {
		want.Words = ch.e.cfg.Words
		ch.config = &want
	}
	if slices.ContainsFunc(d.Settings, func(s dataplane.FieldChange) bool { return s.Field == "interfaces" }) {
		ch.interfaces = want.Interfaces
	}
	return err
}

// checkInterfaces refuses a configuration of which no interface exists, as a start with it does.
func (ch *change) checkInterfaces() error {
	if ch.config.Start == dataplane.StartDegraded {
		return nil
	}
	for _, b := range ch.e.backends {
		if s, ok := b.(backend.InterfaceSetter); ok {
			if err := s.CheckInterfaces(ch.interfaces); err != nil {
				return err
			}
		}
	}
	return nil
}

// stay returns the set after the change: the given flows, and the others that it keeps.
func stay(there []*flowState, plan setchange.Plan, given []flow.Flow) []flow.Flow {
	gone := make(map[string]bool)
	for _, name := range plan.Remove {
		gone[name] = true
	}
	for _, f := range given {
		gone[f.Name] = true
	}
	all := slices.Clone(given)
	for _, c := range there {
		if !gone[c.Name] {
			all = append(all, c.Flow)
		}
	}
	return all
}

// both returns the interfaces of after the change, and then those that only the set of before has.
func both(now, was []dataplane.Interface) []dataplane.Interface {
	all := slices.Clone(now)
	for _, i := range was {
		if !slices.ContainsFunc(now, func(n dataplane.Interface) bool { return n.Name == i.Name }) {
			all = append(all, i)
		}
	}
	return all
}
