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

// refusals are the flows that a start, or a change by a file, with dataplane.StartDegraded went on without. They are
// flows of the set, for Placements, RemoveFlows and the names of added flows, and have no counter. Engine.ctl guards them.
type refusals struct {
	log     *slog.Logger
	goOn    bool                // a flow that is refused is added here
	flows   map[string]*refusal // to be changed by put, remove and end
	again   bool                // the set of flows or the interfaces have changed: a flow may find room now
	tried   []backend.Placed    // flows whose rules this change had in force and took back: packets may have counted for them
	pending *pending            // Engine.pending
}

// refusal is a flow that is not counted. Readers have it: nobody writes to it.
type refusal struct {
	backend.Placed
	place    uint64 // becomes flowState.place once the flow is counted
	rejected []dataplane.Rejection
	err      error
}

// lenient reports whether an error is about flows that the start may go on without.
func (r *refusals) lenient(ctx context.Context, err error) bool {
	return r.goOn && ctx.Err() == nil &&
		(errors.Is(err, dataplane.ErrUnplaced) || errors.Is(err, dataplane.ErrFull) || errors.Is(err, dataplane.ErrDense) || errors.Is(err, dataplane.ErrCostly))
}

// add notes a flow that the start goes on without.
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

// begin lets a change go on without refused flows, if it is to. It returns the flows for end.
func (r *refusals) begin(goOn bool) (before map[string]*refusal) {
	r.goOn = goOn
	return maps.Clone(r.flows)
}

// end ends the change. After an error before is the result of begin, else nil.
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

// drop forgets the refused flows among names.
func (r *refusals) drop(names []string) {
	for _, n := range names {
		r.remove(n)
	}
	r.again = true
}

// set notes that the flows were set, and that counted has the flows that are counted now.
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

// unset returns the names of the refused flows that a set of flows ends, in order.
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

// entries returns the entries that the refused flows would have.
func (r *refusals) entries() (out []shm.Entry) {
	for _, x := range r.inOrder() {
		out = append(out, entryOf(x.Flow))
	}
	return out
}

// mostRefusalsShown bounds the number of conditions about flows.
const mostRefusalsShown = 64

// refusalConditions lists refused flows, and the number of those beyond the first ones.
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

// retryRefused tries the refused flows again, after interfaces, devices or flows have changed. A flow that finds room keeps its
// place: it wins over the flows behind it in the configuration.
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
			return // the others have the same cause, mostly
		}
		e.refused.remove(x.Name)
		err := e.allow([]flow.Flow{x.Flow}, e.cfg.Interfaces)
		if err == nil {
			_, err = e.addPlaced(ctx, []backend.Placed{x.Placed}, nil)
		}
		r.renew() // the flow has its room, or has left it
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

// at returns a copy of the refusal at another place of the list, and with another order.
func (x *refusal) at(place uint64, order uint32) *refusal {
	own := *x
	own.place = place
	own.Order = order
	return &own
}
