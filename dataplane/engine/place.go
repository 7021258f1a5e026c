package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/engine/trial"
	"github.com/flowtally/flowtally/dataplane/engine/xdp"
	"github.com/flowtally/flowtally/dataplane/flow"
)

// choices are the backends that a word of the configuration allows, best first.
func choices(word flow.Backend) []string {
	switch word {
	case "", "auto":
		return []string{"rdma", "xdp"}
	}
	return []string{string(word)}
}

// openBackends opens what the configuration and its flows ask for, in the order in
// which flows are offered to them. What only "auto" asks for may be missing, as long as
// something is left; absent says why it is. A hardware backend without a device is among open even so.
func openBackends(ctx context.Context, cfg dataplane.Config, log *slog.Logger, g *trial.Guard) (open []backend.Backend, absent map[string]error, err error) {
	defer func() {
		if err != nil {
			for _, b := range open {
				err = errors.Join(err, b.Close(true))
			}
			open = nil
		}
	}()
	asked, must := make(map[string]bool), make(map[string]bool)
	words := []flow.Backend{cfg.Backend}
	for _, f := range cfg.Flows {
		if f.Backend != "" {
			words = append(words, f.Backend)
		}
	}
	for _, w := range words {
		named := choices(w)
		for _, name := range named {
			asked[name] = true
			must[name] = must[name] || len(named) == 1
		}
	}
	if asked["rdma"] && cfg.RDMA.Audit {
		asked["xdp"], must["xdp"] = true, true
	}
	absent = make(map[string]error)
	if len(cfg.Interfaces) == 0 { // queue pairs are what there is to count
		for _, name := range []string{"rdma", "xdp"} {
			if asked[name] {
				absent[name] = errNoInterface
			}
			delete(asked, name)
		}
	}
	var reasons []error
	ready := false
	for _, name := range []string{"rdma", "xdp", "sim"} {
		if !asked[name] {
			continue
		}
		b, err := openBackend(ctx, name, cfg, log, g)
		if err == nil {
			open = append(open, b)
			err = absentDevice(b)
		}
		switch {
		case err == nil:
			ready = true
		case must[name]:
			return open, nil, err
		default:
			level := slog.LevelWarn
			if errors.Is(err, backend.ErrNoDevice) {
				level = slog.LevelDebug // as on most hosts
			}
			log.Log(ctx, level, "backend not opened", "backend", name, "reason", err)
			absent[name] = err
			reasons = append(reasons, err)
		}
	}
	if !ready && len(reasons) > 0 {
		return open, nil, nothingCounts(reasons)
	}
	return open, absent, nil
}

// nothingCounts joins why no backend was opened. A host without RDMA is as most hosts are: where
// there is another reason, that one is the cause, and RDMA is not named.
func nothingCounts(reasons []error) error {
	causes := slices.DeleteFunc(slices.Clone(reasons), func(err error) bool { return errors.Is(err, backend.ErrNoDevice) })
	if len(causes) == 0 {
		causes = reasons
	}
	return errors.Join(causes...)
}

var errNoInterface = errors.New("the instance was started without an interface to count on")

func openBackend(ctx context.Context, name string, cfg dataplane.Config, log *slog.Logger, g *trial.Guard) (backend.Backend, error) {
	switch name {
	case "sim":
		return newSimBackend(nil), nil
	case "xdp":
		b, err := xdp.New(xdp.Options{Interfaces: cfg.Interfaces, Config: cfg.XDP, Flows: cfg.Flows, Logger: log})
		if err != nil {
			return nil, err
		}
		return b, nil
	case "rdma":
		b, err := newRDMABackend(ctx, cfg, log, g)
		if err != nil {
			return nil, err
		}
		return b, nil
	}
	return nil, fmt.Errorf("backend %q: %w: use auto, rdma, xdp or sim", name, dataplane.ErrInvalid)
}

// newStack finds the overlay among the backends, and what it lies over. One that has
// nothing to count with is none yet.
func newStack(all []backend.Backend, absent map[string]error, audit bool) *stack {
	s := &stack{audit: audit, related: flow.NewIndex(func(c *counted) *flow.Flow { return &c.Flow })}
	for _, b := range all {
		if absent[b.Name()] != nil {
			continue
		}
		switch b := b.(type) {
		case backend.HardwareBackend:
			s.over = b
		case backend.SoftwareBackend:
			s.under = b
		}
	}
	if s.over == nil {
		return nil
	}
	s.audit = audit && s.under != nil
	return s
}

// choice is the open backends that a flow may go to, best first; refused are those that it might
// have gone to and that are not open. All flows of one word share it, and write to none of it.
type choice struct {
	open    []backend.Backend
	refused []dataplane.Rejection
}

// choice returns the backends that a flow may go to. It is called with ctl held. Code that changes
// Engine.absent holds ctl too, and clears Engine.choices.
func (e *Engine) choice(f flow.Flow) *choice {
	c := e.choices[f.Backend]
	if c == nil {
		open, refused := e.tries(f.Backend)
		c = &choice{slices.Clip(open), slices.Clip(refused)}
		e.choices[f.Backend] = c
	}
	return c
}

// tries makes the choice of the flows that name a backend by word; "": they name none.
func (e *Engine) tries(word flow.Backend) (open []backend.Backend, refused []dataplane.Rejection) {
	if word == "" {
		if e.given {
			return e.backends, nil
		}
		word = e.cfg.Backend
	}
	for _, name := range choices(word) {
		if i := slices.IndexFunc(e.backends, func(b backend.Backend) bool { return b.Name() == name }); i >= 0 && e.absent[name] == nil {
			open = append(open, e.backends[i])
			continue
		}
		reason := "nothing in the configuration that this instance was started with asks for it"
		if err := e.absent[name]; err != nil {
			reason = strings.TrimPrefix(backend.ReasonOf(err), "backend "+name+": ")
		}
		refused = append(refused, dataplane.Rejection{Backend: name, Reason: reason, Always: true})
	}
	if len(open) == 0 && word == "auto" {
		open = slices.DeleteFunc(slices.Clone(e.backends), func(b backend.Backend) bool { return e.absent[b.Name()] != nil })
		return open, refused // those of an instance that only simulates
	}
	return open, refused
}

// newCounted makes a flow to be placed.
func (e *Engine) newCounted(p backend.Placed) *counted {
	of := e.choice(p.Flow)
	c := &counted{Placed: p, rejected: of.refused}
	if e.stack == nil {
		return c
	}
	over := slices.Contains(of.open, backend.Backend(e.stack.over))
	under := e.stack.under != nil && slices.Contains(of.open, backend.Backend(e.stack.under))
	if over || under {
		c.offload = &offload{mayOver: over, mayUnder: under, refusals: c.rejected}
	}
	return c
}

// place puts flows that are in no stack on the first backend that takes all of those
// that have the same choice, and keeps each refusal.
func (e *Engine) place(ctx context.Context, flows []*counted) error {
	for len(flows) > 0 {
		first := e.choice(flows[0].Flow)
		var set, rest []*counted
		for _, c := range flows {
			if e.choice(c.Flow) == first {
				set = append(set, c)
			} else {
				rest = append(rest, c)
			}
		}
		if err := e.placeSet(ctx, set, first); err != nil {
			return err
		}
		flows = rest
	}
	return nil
}

func (e *Engine) placeSet(ctx context.Context, set []*counted, of *choice) error {
	rejected := of.refused
	var errs, usual []error // usual: as on most hosts, and so not the cause where there is another one
	for _, r := range rejected {
		err := fmt.Errorf("%s: %s", r.Backend, r.Reason)
		if errors.Is(e.absent[r.Backend], backend.ErrNoDevice) {
			usual = append(usual, err)
		} else {
			errs = append(errs, err)
		}
	}
	flows := placedOf(set)
	for _, b := range of.open {
		installed, err := b.Install(ctx, flows)
		if err != nil {
			rejected = append(rejected, dataplane.Rejection{Backend: b.Name(), Reason: err.Error()})
			errs = append(errs, fmt.Errorf("%s: %w", b.Name(), err))
			continue
		}
		for i, c := range set {
			c.backend, c.rejected, c.source, c.id = b, rejected, installed[i].Source, installed[i].ID
		}
		for i, c := range set {
			if err := e.publish(c, installed[i]); err != nil {
				return fmt.Errorf("flow %q: %w", c.Name, err)
			}
		}
		return nil
	}
	if len(errs) == 0 {
		errs = usual
	}
	return fmt.Errorf("placing %s: %w: %w", backend.Describe(flows), dataplane.ErrUnplaced, errors.Join(errs...))
}

// placeStack carries the shadows of flows of the stack, relates them to those that
// are there and arranges all of them.
func (e *Engine) placeStack(ctx context.Context, flows []*counted) error {
	if len(flows) == 0 {
		return nil
	}
	e.stack.relate(flows)
	if u := e.stack.under; u != nil {
		in, err := u.Carry(ctx, placedOf(flows))
		for i, c := range flows {
			if err != nil {
				c.refusals = append(c.refusals, dataplane.Rejection{Backend: u.Name(), Reason: err.Error()})
				continue
			}
			c.under, c.hasUnder = in[i], true
		}
		if err != nil && e.stack.audit {
			return fmt.Errorf("counting beside %s, as rdma.audit asks for: %w", e.stack.over.Name(), err)
		}
	}
	err := e.arrange(ctx, flows, slices.Concat(flows, losers(flows)))
	if err != nil && len(flows) > 1 { // it names the flow that it is about
		return fmt.Errorf("placing %s: %w", backend.Describe(placedOf(flows)), err)
	}
	return err
}

func placedOf(flows []*counted) []backend.Placed {
	out := make([]backend.Placed, len(flows))
	for i, c := range flows {
		out[i] = c.Placed
	}
	return out
}
