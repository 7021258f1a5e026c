package engine

import (
	"context"
	"fmt"
	"slices"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/flow"
)

// lostInterface is an interface of an offloaded flow whose device is lost, while other devices count the flow.
type lostInterface struct {
	name   string
	id     uint32 // of the shadow's slot for this interface, with ready
	ready  bool   // the shadow counts in that slot
	active bool   // the flow's total includes that slot
}

// hasLost reports whether the device of c on an interface is lost.
func (c *flowState) hasLost(ifname string) bool {
	return slices.ContainsFunc(c.lost, func(a lostInterface) bool { return a.name == ifname })
}

// takesFrom reports whether XDP would count o on an interface where hardware counts c. o wins over c. inHardware: hardware shall count
// o.
func (o *flowState) takesFrom(c *flowState, inHardware bool) bool {
	if !inHardware {
		return o.Interface == "" || !c.hasLost(o.Interface)
	}
	return slices.ContainsFunc(o.lost, func(a lostInterface) bool {
		return (c.Interface == "" || c.Interface == a.name) && !c.hasLost(a.name)
	})
}

// losesInterface reports whether an offloaded flow has lost a device on an interface where XDP does not count it yet.
func (c *flowState) losesInterface() bool {
	return c.offloaded && slices.ContainsFunc(c.lost, func(a lostInterface) bool { return !a.active })
}

// divide makes XDP count a flow on the interfaces of its lost devices. On the other interfaces hardware goes on counting. After an
// error the caller must take the whole flow out of hardware.
func (m *mover) divide(c *flowState, why error) error {
	software, hardware := m.stack.software, m.stack.hardware
	for i := range c.lost {
		a := &c.lost[i]
		switch {
		case a.active:
			continue
		case !a.ready:
			return fmt.Errorf("XDP does not count it on %s alone", a.name)
		}
		err := m.ctl.Outside(func() error { return hardware.StandIn(c.Placed, a.name, software, a.id) })
		if err != nil {
			return err
		}
		a.active = true
		software.Rely(c.On(a.name))
	}
	c.gone = nil
	c.edit().rejected = m.stack.reasons(c, why)
	c.stopFollowing() // the slot of its shadow lacks the packets that the slots of single interfaces get
	return m.publishDivided(c, why.Error(), true)
}

// returnInterface makes hardware count a flow on an interface again. It fails until hardware counts every flow that wins over this one
// there.
func (m *mover) returnInterface(ctx context.Context, c *flowState, ifname string) error {
	above := slices.DeleteFunc(slices.Clone(c.winners()), func(o *flowState) bool {
		return o.Interface != "" && o.Interface != ifname
	})
	if i := slices.IndexFunc(above, func(o *flowState) bool { return !o.offloaded || o.hasLost(ifname) }); i >= 0 {
		return fmt.Errorf("flow %q wins over it and is not counted there", above[i].Name)
	}
	i := slices.IndexFunc(c.lost, func(a lostInterface) bool { return a.name == ifname })
	before, err := backend.ReadOne(m.stack.software, c.lost[i].id)
	if err != nil {
		return err
	}
	if c.Direction == flow.Egress {
		m.letArrive()
	}
	err = m.ctl.Outside(func() error { return m.stack.hardware.Return(c.Placed, placedOf(above), ifname) })
	if err != nil {
		return err
	}
	if c.Direction == flow.Ingress {
		m.letArrive()
	}
	after, err := backend.ReadOne(m.stack.software, c.lost[i].id)
	missed := after.Packets - before.Packets // at most: the device has counted some of them, too
	last, open := m.stack.software.Outage(c.On(ifname))
	lacks := err != nil || missed > 0 || open || last.After(c.seen())
	c.lost = slices.Delete(c.lost, i, i+1)
	if len(c.lost) == 0 {
		c.edit().rejected = m.stack.reasons(c, nil)
	}
	if _, err := m.countApart(ctx, []*flowState{c}, ifname, false); err != nil {
		m.log.Warn("ending a count that hardware has taken over", "flow", c.Name, "interface", ifname, "err", err)
	}
	text := ""
	if missed > 0 {
		text = fmt.Sprintf("at most %d packets passed meanwhile on %s", missed, ifname)
	}
	if err := m.publishDivided(c, text, lacks); err != nil {
		m.log.Error("showing a flow's source in the mirror", "flow", c.Name, "err", err)
	}
	return nil
}

// publishDivided shows a new source of a flow on some of its interfaces: in the mirror, and by an event.
func (m *mover) publishDivided(c *flowState, why string, lacks bool) error {
	c.resets = m.resets(c) // of other counters than before
	c.edit().source = m.sourceOf(c)
	m.sendMoved(c, why, lacks)
	past := c.goesOn(c.hardware.Cookie, c.base)
	if lacks {
		past = broken(past, m.stack.software.Now())
	}
	return m.writeContinuity(c, past)
}

// joinShadow makes the shadow of a flow count all interfaces in one slot again. The flow can leave hardware only after that.
func (m *mover) joinShadow(ctx context.Context, c *flowState) error {
	for len(c.lost) > 0 {
		if _, err := m.countApart(ctx, []*flowState{c}, c.lost[0].name, false); err != nil {
			return err
		}
		c.lost = c.lost[1:]
	}
	return nil
}

// sourceOf returns the source of a flow. A divided flow has the devices of hardware first, and then those of XDP.
func (m *mover) sourceOf(c *flowState) dataplane.Source {
	src := c.backend.Source(c.Placed)
	if c.offload == nil || !c.offloaded {
		return src
	}
	for _, a := range c.lost {
		by := m.stack.software.Source(c.On(a.name))
		src.Devices = append(src.Devices, by.Devices...) // empty while no program of ours is on the hook
	}
	return src
}
