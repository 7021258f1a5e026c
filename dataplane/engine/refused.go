package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/shm"
)

// refusals are the flows that nothing counts, because a degraded start, or a degraded change, went on without them. They belong
// to the set all the same: Placements lists them, RemoveFlows removes them, and an added flow cannot have their names.
// Engine.ctl guards them.
type refusals struct {
	log     *slog.Logger
	goOn    bool                // the change under way goes on without refused flows, and adds them here
	flows   map[string]*refusal // only put, remove and end write to it
	again   bool                // flows or interfaces have changed since the last retry, so a refused flow may find room
	tried   []backend.Placed    // flows that counted for a while in this change before they were refused; they may have got packets of others
	pending *pending            // Engine.pending
}

// refusal is one refused flow. Readers may have it, so nobody may write to it.
type refusal struct {
	backend.Placed
	place    uint64 // becomes flowState.place once the flow is counted
	rejected []dataplane.Rejection
	err      error
}

// lenient reports whether the start or change under way may go on without the flows of an error.
func (r *refusals) lenient(ctx context.Context, err error) bool {
	return r.goOn && ctx.Err() == nil &&
		(errors.Is(err, dataplane.ErrUnplaced) || errors.Is(err, dataplane.ErrFull) || errors.Is(err, dataplane.ErrDense) || errors.Is(err, dataplane.ErrCostly))
}

// add refuses a flow, and logs it.
func (r *refusals) add(c *flowState, err error) {
	if len(r.flows) < mostRefusalsShown {
		r.log.Warn("counting without a flow", "flow", c.Name, "err", err)
	}
	rejected := c.rejected
	if len(rejected) == 0 {
		rejected = []dataplane.Rejection{{Backend: string(cmp.Or(c.Backend, flow.Auto)), Reason: err.Error()}}
	}
	r.put(&refusal{Placed: c.Placed, rejected: rejected, err: err})
}

// put notes a refused flow.
func (r *refusals) put(x *refusal) {
	r.flows[x.Name] = x
	r.pending.names = append(r.pending.names, x.Name)
}

// remove forgets a refused flow.
func (r *refusals) remove(name string) {
	if r.flows[name] != nil {
		delete(r.flows, name)
		r.pending.names = append(r.pending.names, name)
	}
}

// begin is called at the begin of a change. goOn: the change goes on without refused flows. Callers pass the result to end if the
// change fails.
func (r *refusals) begin(goOn bool) (before map[string]*refusal) {
	r.goOn = goOn
	return maps.Clone(r.flows)
}

// end is called at the end of a change. before restores the refused flows of before a change that failed; nil after a success.
func (r *refusals) end(before map[string]*refusal) {
	r.goOn = false
	r.tried = nil
	if before != nil {
		r.flows = before
	}
}

// inOrder returns the refused flows in the order in which they were configured.
func (r *refusals) inOrder() []*refusal { return slices.SortedFunc(maps.Values(r.flows), byOrder) }

func byOrder(a, b *refusal) int { return cmp.Compare(a.Order, b.Order) }

func (x *refusal) placement() dataplane.Placement {
	return dataplane.Placement{Flow: x.Flow.Clone(), Order: placeOf(x.Placed), Rejected: x.rejected}
}

// drop removes the refused flows among names.
func (r *refusals) drop(names []string) {
	for _, n := range names {
		r.remove(n)
	}
	r.again = true
}

// set updates the refused flows after SetFlows. counted has the flows that are counted now.
func (r *refusals) set(flows []flow.Flow, opts dataplane.SetOptions, counted map[string]*flowState) {
	r.again = true
	if !opts.KeepOthers {
		r.drop(r.unset(flows, opts.Keep))
	}
	for name := range r.flows {
		if counted[name] != nil {
			r.remove(name)
		}
	}
}

// unset returns the names of the refused flows that SetFlows removes from the set, sorted.
func (r *refusals) unset(flows []flow.Flow, keep []string) []string {
	left := maps.Clone(r.flows)
	for _, name := range keep {
		delete(left, name)
	}
	for _, f := range flows {
		delete(left, f.Name)
	}
	return slices.Sorted(maps.Keys(left))
}

// entries returns the entries that the refused flows would have in the mirror.
func (r *refusals) entries() (out []shm.Entry) {
	for _, x := range r.inOrder() {
		out = append(out, entryOf(x.Flow))
	}
	return out
}

// mostRefusalsShown is how many refused flows get a condition each. One more condition has the number of the others.
const mostRefusalsShown = 64

// refusalConditions returns the conditions of refused flows.
func refusalConditions(all []*refusal) (out []dataplane.Condition) {
	const fix = "remove the cause that the text names: the flow is tried again when interfaces, devices or other flows change; or remove the flow from the configuration, then: flowtally apply"
	slices.SortFunc(all, byOrder)
	for _, x := range all[:min(len(all), mostRefusalsShown)] {
		out = append(out, dataplane.Condition{Code: dataplane.CodeFlowRefused, Severity: dataplane.High, Object: x.Name, Text: x.err.Error(), Fix: fix})
	}
	if n := len(all) - mostRefusalsShown; n > 0 {
		text := fmt.Sprintf("%d further flows are not counted; flowtally flows list shows them", n)
		out = append(out, dataplane.Condition{Code: dataplane.CodeFlowRefused, Severity: dataplane.High, Object: "flows", Text: text, Fix: fix})
	}
	return out
}

// retryRefused tries the refused flows again after interfaces, devices or flows have changed. A flow that finds room now has the
// place that the configuration gave it, and wins over the flows behind it.
func retryRefused(ctx context.Context, e *Engine) {
	e.refused.again = false
	r := newRoom(e)
	failed := 0
	defer func() { r.entries.Note() }()
	for _, x := range e.refused.inOrder() {
		e.ctl.Pause()
		if err := r.take(e.placement.newFlow(x.Placed)); err != nil {
			if err.Error() != x.err.Error() {
				e.refused.put(x.withReason(err))
			}
			continue
		}
		if failed == mostRefusalsShown {
			return // most of the others would fail for the same reason
		}
		e.refused.remove(x.Name)
		err := e.allow([]flow.Flow{x.Flow}, e.cfg.Interfaces)
		if err == nil {
			_, err = e.addPlaced(ctx, []backend.Placed{x.Placed}, nil)
		}
		r.renew() // the attempt has used room, or given it back
		if err != nil {
			failed++
			e.refused.put(x.withReason(err))
			continue
		}
		e.flows[x.Name].place = x.place
	}
}

// withReason returns a copy of the refusal with another reason.
func (x *refusal) withReason(err error) *refusal {
	own := *x
	own.err = err
	return &own
}

// at returns a copy of the refusal with another place and another order.
func (x *refusal) at(place uint64, order uint32) *refusal {
	own := *x
	own.place = place
	own.Order = order
	return &own
}
