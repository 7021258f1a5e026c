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

// returning is a flow on an interface whose device has returned.
type returning struct {
	c      *flowState
	at     lostInterface
	before backend.Pair // the count of the slot in XDP, from before the device counted again
}

// returnInterfaces makes hardware count flows again on interfaces whose devices have returned. all is in order of precedence. It
// returns on how many interfaces of flows it did so.
//
// All of them wait together for the packets in flight: a wait for each would hold up control calls for minutes.
func (m *mover) returnInterfaces(ctx context.Context, all []*flowState) int {
	list := m.returningOf(all)
	if len(list) == 0 {
		return 0
	}
	m.stack.software.Look() // when XDP's count ends, its hook may be released, and with it the signs of a loss

	isOf := func(d flow.Direction) func(returning) bool {
		return func(r returning) bool { return r.c.Direction == d }
	}
	if slices.ContainsFunc(list, isOf(flow.Egress)) {
		m.letArrive()
	}
	list = slices.DeleteFunc(list, func(r returning) bool {
		err := m.returnInterface(r.c, r.at.name)
		if err != nil {
			m.log.Debug("a flow stays in XDP on an interface", "flow", r.c.Name, "interface", r.at.name, "reason", err)
		}
		return err != nil
	})
	if slices.ContainsFunc(list, isOf(flow.Ingress)) {
		m.letArrive()
	}
	for _, r := range list {
		m.endStandIn(ctx, r)
	}
	return len(list)
}

// returningOf returns the interfaces of flows that their devices can count again.
func (m *mover) returningOf(all []*flowState) (list []returning) {
	for _, c := range all {
		for _, at := range c.lost {
			if !c.offloaded || !at.active || !m.isBack(c, at.name) {
				continue
			}
			before, err := backend.ReadOne(m.stack.software, at.id)
			if err != nil {
				m.log.Debug("a flow stays in XDP on an interface", "flow", c.Name, "interface", at.name, "reason", err)
				continue
			}
			list = append(list, returning{c: c, at: at, before: before})
		}
	}
	return list
}

// isBack reports whether the device of c on an interface can count it again.
func (m *mover) isBack(c *flowState, ifname string) bool {
	var others []string // lost interfaces
	for _, a := range c.lost {
		if a.name != ifname {
			others = append(others, a.name)
		}
	}
	return m.stack.hardware.Fits(c.Flow, placedOf(c.winnersOn(ifname)), others) == nil
}

// winnersOn returns the flows that win over c on an interface, in order of precedence.
func (c *flowState) winnersOn(ifname string) []*flowState {
	return slices.DeleteFunc(slices.Clone(c.winners()), func(o *flowState) bool {
		return o.Interface != "" && o.Interface != ifname
	})
}

// returnInterface makes hardware count a flow on an interface again. It fails until hardware counts every flow that wins over this one
// there.
func (m *mover) returnInterface(c *flowState, ifname string) error {
	above := c.winnersOn(ifname)
	if i := slices.IndexFunc(above, func(o *flowState) bool { return !o.offloaded || o.hasLost(ifname) }); i >= 0 {
		return fmt.Errorf("flow %q wins over it and is not counted there", above[i].Name)
	}
	err := m.ctl.Outside(func() error { return m.stack.hardware.Return(c.Placed, placedOf(above), ifname) })
	if err != nil {
		return err
	}
	c.lost = slices.DeleteFunc(c.lost, func(a lostInterface) bool { return a.name == ifname })
	return nil
}

// endStandIn ends XDP's count of a flow on an interface where hardware counts again. It declares a loss if packets have passed while
// hardware began.
func (m *mover) endStandIn(ctx context.Context, r returning) {
	c, ifname := r.c, r.at.name
	passed := uint64(0) // at most: the device has counted some of them, too
	after, err := backend.ReadOne(m.stack.software, r.at.id)
	if err == nil {
		passed = after.Packets - r.before.Packets
	}
	last, open := m.stack.software.Outage(c.On(ifname))
	lacks := err != nil || passed > 0 || open || last.After(c.seen())
	if len(c.lost) == 0 {
		c.edit().rejected = m.stack.reasons(c, nil)
	}
	if _, err := m.countApart(ctx, []*flowState{c}, ifname, false); err != nil {
		m.log.Warn("ending a count that hardware has taken over", "flow", c.Name, "interface", ifname, "err", err)
	}
	text := ""
	if passed > 0 {
		text = fmt.Sprintf("at most %d packets passed meanwhile on %s", passed, ifname)
	}
	if err := m.publishDivided(c, text, lacks); err != nil {
		m.log.Error("showing a flow's source in the mirror", "flow", c.Name, "err", err)
	}
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
