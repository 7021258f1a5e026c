package engine

import (
	"context"
	"fmt"
	"slices"

	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/flow"
)

// uninstall removes flows from their backends: from hardware first. In the other order XDP would count packets for the flows behind
// them that hardware still counts for the flows themselves.
func (p *placement) uninstall(ctx context.Context, all []*flowState) error {
	from := make(map[backend.Backend][]backend.Placed)
	for _, c := range all {
		switch {
		case c.offload == nil && c.backend != nil:
			from[c.backend] = append(from[c.backend], c.Placed)
		case c.offload != nil && c.offloaded:
			from[p.mover.stack.hardware] = append(from[p.mover.stack.hardware], c.Placed)
		}
		if c.offload != nil && c.hasShadow {
			from[p.mover.stack.software] = append(from[p.mover.stack.software], c.Placed)
		}
	}
	removal := p.mover.beginRemoval(all)
	defer removal.end(p.mover)
	p.mover.awaitFlight(removal.flows, flow.Egress)
	for _, b := range p.choices.all { // hardware comes before software
		if len(from[b]) == 0 {
			continue
		}
		err := p.mover.ctl.Outside(func() error { return b.Remove(ctx, from[b]) })
		if err != nil {
			err = fmt.Errorf("removing %s from %s: %w", backend.Describe(from[b]), b.Name(), err)
			for _, c := range all { // they stay flows; those that hardware has lost already go on in XDP
				if c.offload != nil && c.offloaded && b != backend.Backend(p.mover.stack.hardware) {
					c.gone = err
				}
			}
			return err
		}
		if _, isHardware := b.(backend.HardwareBackend); isHardware {
			p.mover.awaitFlight(removal.flows, flow.Ingress)
		}
	}
	for _, c := range all {
		if c.offload != nil {
			c.offloaded = false
		}
	}
	return nil
}

// removeFromStack removes uninstalled flows from the stack. Then it arranges the flows that lost against them, and offers the
// device up to room flows that it refused before.
func (p *placement) removeFromStack(ctx context.Context, gone []*flowState, room int) error {
	if p.mover.stack == nil {
		return nil
	}
	seeds := losers(gone)
	p.mover.stack.unrelate(slices.DeleteFunc(slices.Clone(gone), func(c *flowState) bool { return c.offload == nil }))
	left := make(map[*flowState]bool, len(gone))
	for _, c := range gone {
		left[c] = true
	}
	seeds = slices.DeleteFunc(seeds, func(c *flowState) bool { return left[c] })
	return p.arranger.arrange(ctx, nil, append(seeds, p.arranger.roomFor(room)...))
}

// countOffloaded returns how many of flows hardware counts.
func countOffloaded(flows []*flowState) (n int) {
	for _, c := range flows {
		if c.offload != nil && c.offloaded {
			n++
		}
	}
	return n
}
