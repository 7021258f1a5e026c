package engine

import (
	"context"
	"fmt"
	"slices"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
)

// away is an interface of a flow whose device is lost, while other devices count the flow on.
type away struct {
	on     string // the interface
	id     uint32 // of the shadow's counter there, where ready
	ready  bool   // the shadow counts there
	stands bool   // in the device's place
	epoch  uint64 // of the shadow's counting there; see SoftwareBackend.Epoch
}

// isAway says that the overlay does not count c on an interface.
func (c *counted) isAway(ifname string) bool {
	return slices.ContainsFunc(c.away, func(a away) bool { return a.on == ifname })
}

// awayFrom lists the interfaces on which the overlay does not count c.
func (c *counted) awayFrom() []string {
	out := make([]string, len(c.away))
	for i, a := range c.away {
		out[i] = a.on
	}
	return out
}

// takesFrom says whether the backend behind the overlay would count o, which wins over c, on an interface where
// the overlay counts c. over says whether the overlay is to count o.
func (o *counted) takesFrom(c *counted, over bool) bool {
	if !over {
		return o.Interface == "" || !c.isAway(o.Interface)
	}
	return slices.ContainsFunc(o.away, func(a away) bool {
		return (c.Interface == "" || c.Interface == a.on) && !c.isAway(a.on)
	})
}

// noteAway takes note of the interfaces whose devices a flow has lost, if it can stay on the others. With
// audit a flow moves whole: its shadow has counted on all interfaces, so its total stays exact.
func (s *stack) noteAway(c *counted) {
	if s.under == nil || s.audit || !c.mayUnder || !c.hasUnder {
		return
	}
	for _, ifname := range s.over.Lost(c.Placed) {
		if !c.isAway(ifname) {
			c.away = append(c.away, away{on: ifname})
		}
	}
}

// apart has the shadows of flows that have lost a device count on its interface, all at once: a rule for one
// interface has another mask than the rule for all, and a new mask costs a load of XDP's programs.
func (e *Engine) apart(ctx context.Context, all []*counted, over assignment) {
	losing := make(map[string][]*counted)
	for _, c := range all {
		for _, a := range c.away {
			if over[c] && c.offloaded && !a.stands {
				losing[a.on] = append(losing[a.on], c)
			}
		}
	}
	for ifname, list := range losing {
		ids, err := e.stack.under.Apart(ctx, placedOf(list), ifname, true)
		if err != nil {
			e.log.Warn("flows leave the devices that are left, too", "interface", ifname, "flows", len(list), "err", err)
			continue
		}
		for i, c := range list {
			at := slices.IndexFunc(c.away, func(a away) bool { return a.on == ifname })
			c.away[at].id, c.away[at].ready = ids[i], true
		}
	}
}

// divide puts shadows in the place of a flow's lost devices; on the other interfaces the overlay counts on, and
// nothing changes there. On error the flow has to leave the overlay.
func (e *Engine) divide(c *counted, why error) error {
	under, over := e.stack.under, e.stack.over
	for i := range c.away {
		a := &c.away[i]
		switch {
		case a.stands:
			continue
		case !a.ready:
			return fmt.Errorf("XDP does not count it on %s alone", a.on)
		}
		if err := over.StandIn(c.Placed, a.on, under, a.id); err != nil {
			return err
		}
		a.stands, a.epoch = true, under.Epoch(c.On(a.on))
	}
	c.gone = nil
	c.rejected = e.stack.reasons(c, why)
	c.epoch = 0 // the shadow's own counter lacks the packets that are counted apart
	return e.divided(c, why.Error(), true)
}

// losesPart says that a device of a flow is lost, and that its shadow does not stand in for it yet.
func (c *counted) losesPart() bool {
	return c.offloaded && slices.ContainsFunc(c.away, func(a away) bool { return !a.stands })
}

// reunite has devices that are back count flows that lost them, those that win first, and returns
// how many it could.
func (e *Engine) reunite(ctx context.Context, all []*counted) (n int) {
	for _, c := range all {
		for _, a := range slices.Clone(c.away) {
			if !c.offloaded || !a.stands {
				continue
			}
			if err := e.comeBack(ctx, c, a.on); err != nil {
				e.log.Debug("a flow stays in XDP on an interface", "flow", c.Name, "interface", a.on, "reason", err)
				continue
			}
			n++
		}
	}
	return n
}

// comeBack has the overlay count a flow on an interface again. The flow waits until those that win over it
// there are counted there.
func (e *Engine) comeBack(ctx context.Context, c *counted, ifname string) error {
	above := slices.DeleteFunc(slices.Clone(c.winners()), func(o *counted) bool {
		return o.Interface != "" && o.Interface != ifname
	})
	if i := slices.IndexFunc(above, func(o *counted) bool { return !o.offloaded || o.isAway(ifname) }); i >= 0 {
		return fmt.Errorf("flow %q wins over it and is not counted there", above[i].Name)
	}
	missed, err := e.stack.over.Return(c.Placed, placedOf(above), ifname)
	if err != nil {
		return err
	}
	c.away = slices.DeleteFunc(c.away, func(a away) bool { return a.on == ifname })
	if len(c.away) == 0 {
		c.rejected = e.stack.reasons(c, nil)
	}
	if _, err := e.stack.under.Apart(ctx, []backend.Placed{c.Placed}, ifname, false); err != nil {
		e.log.Warn("ending a count that hardware has taken over", "flow", c.Name, "interface", ifname, "err", err)
	}
	text := ""
	if missed > 0 {
		text = fmt.Sprintf("at most %d packets passed meanwhile on %s", missed, ifname)
	}
	if err := e.divided(c, text, missed > 0); err != nil {
		e.log.Error("showing a flow's source in the mirror", "flow", c.Name, "err", err)
	}
	return nil
}

// divided publishes the source of a flow after the source has changed on some of its interfaces, and writes it
// to the mirror.
func (e *Engine) divided(c *counted, why string, lacks bool) error {
	c.resets = e.resets(c) // the counters are not the same ones
	c.source = e.sourceOf(c)
	e.tell(c, why, dataplane.Uncounted{Unknown: lacks})
	return e.settle(c, c.over.Cookie, c.base, lacks)
}

// undivide has the shadow count a flow in one counter again, as it leaves the overlay.
func (e *Engine) undivide(ctx context.Context, c *counted) error {
	for len(c.away) > 0 {
		if _, err := e.stack.under.Apart(ctx, []backend.Placed{c.Placed}, c.away[0].on, false); err != nil {
			return err
		}
		c.away = c.away[1:]
	}
	return nil
}

// sourceOf returns the source of a flow. If the flow is divided, the overlay's devices come before those of its
// shadow.
func (e *Engine) sourceOf(c *counted) dataplane.Source {
	src := c.backend.Source(c.Placed)
	if c.offload == nil || !c.offloaded {
		return src
	}
	for _, a := range c.away {
		by := e.stack.under.Source(c.On(a.on))
		src.Devices = append(src.Devices, by.Devices...) // none: its hook is not held now
	}
	return src
}

// followApart notes whether the hook of an interface on which a flow is divided was lost for a while.
func (e *Engine) followApart(c *counted) error {
	if c.offload == nil {
		return nil
	}
	for i := range c.away {
		a := &c.away[i]
		now := e.stack.under.Epoch(c.On(a.on))
		if !a.stands || now == 0 || now == a.epoch {
			continue
		}
		gap := a.epoch != 0
		if a.epoch = now; gap {
			if err := e.divided(c, "its hook was lost for a while", true); err != nil {
				return err
			}
		}
	}
	return nil
}
