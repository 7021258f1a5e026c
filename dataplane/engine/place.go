package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
)

// placement finds the backend for a flow, and installs the flow there. Callers hold Engine.ctl.
type placement struct {
	choices  *choices
	mover    *mover
	arranger *arranger
	flows    map[string]*flowState // Engine.flows
	refused  *refusals
	audit    bool // rdma.audit of the configuration
}

// newFlow returns the state of a flow that no backend counts yet.
func (p *placement) newFlow(f backend.Placed) *flowState {
	stack := p.mover.stack
	of := p.choices.of(f.Flow)
	c := &flowState{shown: &shown{Placed: f, rejected: of.refused}, pending: p.mover.pending}
	if stack == nil {
		return c
	}
	inHardware := slices.Contains(of.open, backend.Backend(stack.hardware))
	inSoftware := stack.software != nil && slices.Contains(of.open, backend.Backend(stack.software))
	if inHardware || inSoftware {
		c.offload = &offload{allowsHardware: inHardware, allowsSoftware: inSoftware, refusals: c.rejected}
	}
	return c
}

// place installs flows outside the stack, and publishes them. The flows that may go to the same backends all go to the first
// that takes them, and remember why others refused them. installed has the slots of flows that their backend has by now: for
// each choice of backends, either all of its flows or none.
func (p *placement) place(ctx context.Context, flows []*flowState, installed map[*flowState]backend.Installed) error {
	for len(flows) > 0 {
		first := p.choices.of(flows[0].Flow)
		var set, rest []*flowState
		for _, c := range flows {
			if p.choices.of(c.Flow) == first {
				set = append(set, c)
			} else {
				rest = append(rest, c)
			}
		}
		var err error
		if _, is := installed[set[0]]; is {
			err = p.placeSet(ctx, set, first, installed)
		} else {
			err = p.placeLeniently(ctx, set, first)
		}
		if err != nil {
			return err
		}
		flows = rest
	}
	return nil
}

// placeLeniently is placeSet for a start that goes on without refused flows. It finds them by halving the set: for example, only
// an attempt tells for which flows the trees have no room.
func (p *placement) placeLeniently(ctx context.Context, set []*flowState, of *choice) error {
	err := p.placeSet(ctx, set, of, nil)
	if err == nil || !p.refused.lenient(ctx, err) {
		return err
	}
	if errors.Is(err, backend.ErrUndone) {
		p.refused.tried = append(p.refused.tried, placedOf(set)...)
	}
	if len(set) == 1 {
		p.refused.add(set[0], err)
		return nil
	}
	half := len(set) / 2
	if err := p.placeLeniently(ctx, set[:half], of); err != nil {
		return err
	}
	return p.placeLeniently(ctx, set[half:], of)
}

// placeSet installs flows that may go to the same backends, unless they are installed by now, and publishes them.
func (p *placement) placeSet(ctx context.Context, set []*flowState, of *choice, there map[*flowState]backend.Installed) error {
	var refusals []error // by of.open, in its order
	for _, b := range of.open {
		installed, err := p.install(ctx, b, set, there)
		if err != nil {
			refusals = append(refusals, err)
			continue
		}
		rejected := of.with(refusals)
		for i, c := range set {
			c.backend = b
			c.id = installed[i].ID
			c.edit().rejected = rejected
			c.edit().source = installed[i].Source
		}
		var left []backend.Placed
		for i, c := range set {
			p.mover.ctl.Pause()
			err := ctx.Err()
			if err == nil {
				err = p.mover.publish(c, installed[i], false)
			}
			if err != nil {
				err = fmt.Errorf("flow %q: %w", c.Name, err)
			}
			switch {
			case err == nil:
			case p.refused.lenient(ctx, err): // the mirror cannot grow
				p.refused.add(c, err)
				left = append(left, c.Placed)
			default:
				return err
			}
		}
		if len(left) > 0 {
			p.refused.tried = append(p.refused.tried, left...)
			return p.mover.ctl.Outside(func() error { return b.Remove(ctx, left) })
		}
		return nil
	}
	return p.unplaced(set, of, refusals)
}

// install has a backend count flows, unless installed has them.
func (p *placement) install(ctx context.Context, b backend.Backend, set []*flowState, installed map[*flowState]backend.Installed) (in []backend.Installed, err error) {
	if installed == nil {
		err = p.mover.ctl.Outside(func() (err error) { in, err = b.Install(ctx, placedOf(set)); return err })
		return in, err
	}
	for _, c := range set {
		in = append(in, installed[c])
	}
	return in, nil
}

// unplaced returns the error of flows that no backend counts. refusals are the errors of the open backends.
func (p *placement) unplaced(set []*flowState, of *choice, refusals []error) error {
	var errs, usual []error // usual: most hosts have no RDMA device, so that is the cause only if nothing else is
	for _, r := range of.refused {
		err := fmt.Errorf("%s: %s", r.Backend, r.Reason)
		if errors.Is(p.choices.absent[r.Backend], backend.ErrNoDevice) {
			usual = append(usual, err)
		} else {
			errs = append(errs, err)
		}
	}
	for i, err := range refusals {
		errs = append(errs, fmt.Errorf("%s: %w", of.open[i].Name(), err))
	}
	if len(errs) == 0 {
		errs = usual
	}
	rejected := of.with(refusals)
	for _, c := range set {
		c.edit().rejected = rejected
	}
	return fmt.Errorf("placing %s: %w: %w", backend.Describe(placedOf(set)), dataplane.ErrUnplaced, errors.Join(errs...))
}

// placeOffload adds flows to the stack: it relates them to the others, gives them shadows, and has them counted.
func (p *placement) placeOffload(ctx context.Context, flows []*flowState) error {
	if len(flows) == 0 {
		return nil
	}
	stack := p.mover.stack
	stack.relate(flows)
	fresh := slices.DeleteFunc(slices.Clone(flows), func(c *flowState) bool { return c.hasShadow || c.noShadow })
	seeds := slices.Concat(flows, losers(flows))
	if u := stack.software; u != nil && len(fresh) > 0 {
		seeds = append(seeds, p.arranger.makeWay(ctx, fresh)...)
		var in []backend.Installed
		err := p.mover.ctl.Outside(func() (err error) { in, err = u.AddShadows(ctx, placedOf(fresh)); return err })
		for i, c := range fresh {
			if err != nil {
				c.refusals = append(c.refusals, dataplane.Rejection{Backend: u.Name(), Reason: err.Error()})
				continue
			}
			c.shadow = in[i]
			c.hasShadow = true
		}
		if err != nil && stack.audit {
			return stack.unaudited(err)
		}
	}
	err := p.arranger.arrange(ctx, flows, seeds)
	if err != nil && len(flows) > 1 { // err names the flow that was refused
		return fmt.Errorf("placing %s: %w", backend.Describe(placedOf(flows)), err)
	}
	return err
}

// placedOf returns the placed flows of a list.
func placedOf(flows []*flowState) []backend.Placed {
	out := make([]backend.Placed, len(flows))
	for i, c := range flows {
		out[i] = c.Placed
	}
	return out
}
