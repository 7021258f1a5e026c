package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/flow"
)

// moveToSoftware moves flows to their shadows: those that hardware must not count any more, and those that it has lost. It returns
// the flows that it moved. What if a flow has no usable shadow? If its device is lost, it waits without a source. It also does
// if hardware, by counting it, would count packets of a flow that has just left.
func (r *arranger) moveToSoftware(ctx context.Context, all []*flowState, inHardware assignment, why map[*flowState]error) (displaced []*flowState) {
	m := r.mover
	var suspended []*flowState
	stay := staying(all, inHardware)
	r.countApart(ctx, all, inHardware)
	for _, c := range slices.Backward(all) {
		waits := !c.offloaded && c.gone != nil // for its device, or for its shadow
		if inHardware[c] && (waits || c.gone == nil) || !c.offloaded && !waits {
			continue
		}
		reason := c.gone
		if reason == nil {
			reason = why[c]
		}
		if inHardware[c] && c.losesInterface() {
			err := m.divide(c, reason)
			if err == nil {
				displaced = append(displaced, c)
				continue
			}
			m.log.Warn("a flow leaves its other devices, too", "flow", c.Name, "err", err)
		}
		err := dataplane.ErrUnplaced
		if c.allowsSoftware && c.hasShadow {
			err = m.toSoftware(ctx, c, reason)
		}
		if err == nil {
			c.edit().rejected = m.stack.reasons(c, reason)
			displaced = append(displaced, c)
			continue
		}

		takesOthers := !waits && c.takesFromOthers(stay)
		switch {
		case waits:
			m.log.Debug("a flow without its device still has no other source", "flow", c.Name, "err", err)
			r.waiting = r.waiting || c.allowsSoftware
		case errors.Is(reason, backend.ErrUnread) && !takesOthers:
			// Nothing else can count it, and its rules in the device still do. So we leave them, and read them when that
			// works again. Removing them would lose the packets until then.
			c.gone = nil
			r.waiting = r.waiting || c.allowsSoftware
		case c.gone != nil || takesOthers:
			m.suspend(ctx, c, reason)
			suspended = append(suspended, c)
			r.waiting = r.waiting || c.allowsSoftware
		default:
			m.log.Error("moving a flow that does not fit any more", "flow", c.Name, "reason", reason, "err", err)
		}
	}

	if len(suspended) > 0 {
		r.poller.Poll() // publishes the last samples, which nobody would read later
		for _, c := range suspended {
			m.hold(c)
		}
	}
	return displaced
}

// staying adds to an assignment the flows that stay in hardware all the same: their counters cannot be read for a while, but no
// other backend can count them.
func staying(all []*flowState, inHardware assignment) assignment {
	stay := maps.Clone(inHardware)
	for _, c := range all {
		waits := c.offloaded && errors.Is(c.gone, backend.ErrUnread) && !(c.allowsSoftware && c.mayFollow())
		stay[c] = inHardware[c] || waits && !c.takesFromOthers(stay)
	}
	return stay
}

// takesFromOthers reports whether hardware would count packets of another flow if it counted c beside the flows of an assignment.
func (c *flowState) takesFromOthers(inHardware assignment) bool {
	return slices.ContainsFunc(c.winners(), func(o *flowState) bool { return o.takesFrom(c, inHardware.has(o)) })
}

// publishFresh publishes the fresh flows that XDP is to count. displaced are the flows that have just left hardware.
func (r *arranger) publishFresh(ctx context.Context, fresh []*flowState, inHardware assignment, why map[*flowState]error, displaced []*flowState) error {
	m := r.mover
	var mine []*flowState
	for _, c := range fresh {
		if !inHardware[c] && !c.published() {
			mine = append(mine, c)
		}
	}
	if len(mine) == 0 {
		return nil
	}
	if err := m.setActive(ctx, mine, true); err != nil {
		return fmt.Errorf("placing %s: %w: %w", backend.Describe(placedOf(mine)), dataplane.ErrUnplaced, err)
	}
	left := make(map[*flowState]bool, len(displaced))
	for _, o := range displaced {
		left[o] = true
	}
	for _, c := range mine {
		m.ctl.Pause()
		c.edit().rejected = m.stack.reasons(c, why[c])
		var behind []*flowState
		if len(displaced) > 0 {
			behind = c.behind(func(o *flowState) bool { return left[o] })
		}
		if err := m.publishInSoftware(c, behind); err != nil {
			return fmt.Errorf("flow %q: %w", c.Name, err)
		}
	}
	return nil
}

// moveToHardware moves the flows to hardware that are assigned to it and not there yet, in order of precedence. failed has the
// flows that the device refused.
func (r *arranger) moveToHardware(ctx context.Context, all []*flowState, inHardware assignment) (failed map[*flowState]error, err error) {
	m := r.mover
	var list []*flowState
	for _, c := range all {
		if inHardware[c] && !c.offloaded {
			list = append(list, c)
		}
	}
	if len(list) == 0 {
		return nil, nil
	}
	before, err := m.readShadows(ctx, list)
	if err != nil {
		return nil, err
	}
	m.awaitFlight(list, flow.Egress)
	m.readSentAgain(list, before)
	failed = m.install(ctx, list)
	entered := slices.DeleteFunc(slices.Clone(list), func(c *flowState) bool { return failed[c] != nil })
	m.awaitFlight(entered, flow.Ingress)
	ahead := m.unfollowBehind(list, failed)
	if m.stack.software != nil { // setActive below may release hooks, and with them the signs of a loss
		m.stack.software.Look()
	}
	var off []*flowState
	for i, c := range list {
		m.ctl.Pause()
		switch {
		case failed[c] != nil:
			continue
		case c.published():
			err = m.toHardware(c, before[i])
		default:
			err = m.publishInHardware(c, before[i], ahead[c])
		}
		if err != nil {
			return nil, fmt.Errorf("flow %q: %w", c.Name, err)
		}
		c.edit().rejected = m.stack.reasons(c, nil)
		if c.hasShadow && (!m.stack.audit || c.hardware.Takes) {
			off = append(off, c)
		}
	}
	if len(off) > 0 {
		if err := m.setActive(ctx, off, false); err != nil {
			m.log.Warn("detaching from hooks that no flow needs", "err", err)
		}
	}
	for _, c := range list {
		m.ctl.Pause()
		if failed[c] == nil {
			err = errors.Join(err, m.writeHardwareContinuity(c))
		}
	}
	return failed, err
}

// errBlocked is the error of a flow that was not offered to the device, because the device had refused a flow that wins over it.
var errBlocked = errors.New("a flow that wins over it was refused")

// install installs the list in hardware with one call. If that fails it tries flow by flow, so that one refused flow does not keep
// the others out.
func (m *mover) install(ctx context.Context, list []*flowState) (failed map[*flowState]error) {
	failed = make(map[*flowState]error)
	take := func(part []*flowState) error {
		var in []backend.Installed
		err := m.ctl.Outside(func() (err error) { in, err = m.stack.hardware.Install(ctx, placedOf(part)); return err })
		if errors.Is(err, backend.ErrUndone) {
			m.declareTaken(part)
		}
		if err != nil {
			return err
		}
		for i, c := range part {
			c.hardware = in[i]
			c.offloaded = true
			c.resets = 0
		}
		return nil
	}
	err := take(list)
	if err == nil {
		return failed
	}
	if len(list) == 1 {
		failed[list[0]] = err
		return failed
	}
	for i, c := range list {
		if slices.ContainsFunc(c.above, func(o *flowState) bool { return failed[o] != nil }) {
			failed[c] = errBlocked
		} else if err := take(list[i : i+1]); err != nil {
			failed[c] = err
		}
	}
	return failed
}

// countApart has XDP count flows in slots of their own on interfaces whose devices are lost. It passes all flows of an interface in
// one call: a rule for one interface has a mask of its own, and a new mask means that XDP's programs are loaded again.
func (r *arranger) countApart(ctx context.Context, all []*flowState, inHardware assignment) {
	m := r.mover
	losing := make(map[string][]*flowState)
	for _, c := range all {
		for _, a := range c.lost {
			if inHardware[c] && c.offloaded && !a.active && c.winnerWithoutShadow(a.name) == nil {
				losing[a.name] = append(losing[a.name], c)
			}
		}
	}
	for ifname, list := range losing {
		ids, err := m.countApart(ctx, list, ifname, true)
		if err != nil {
			m.log.Warn("flows leave their other devices, too", "interface", ifname, "flows", len(list), "err", err)
			continue
		}
		for i, c := range list {
			at := slices.IndexFunc(c.lost, func(a lostInterface) bool { return a.name == ifname })
			c.lost[at].id = ids[i]
			c.lost[at].ready = true
		}
	}
}
