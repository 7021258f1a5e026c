package xdp

import (
	"errors"
	"fmt"
	"slices"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/xdp"
)

// attach attaches to all hooks with demand, unless it has tried them before: retake.go repeats attempts.
//
// It waits for a missing interface. But if no interface exists at all, and neither this process nor an earlier one has ever
// counted (known), somebody has probably mistyped a name, and attach returns an error.
func (h *hooks) attach(known bool) error {
	defer h.refresh()
	var absent []error
	for _, pattern := range h.unmatched() {
		absent = append(absent, fmt.Errorf("interface %s: %w: no interface matches the pattern", pattern, xdp.ErrNotFound))
	}
	for _, i := range h.interfaces {
		want := h.wanted(i.Name)
		if want == (xdp.AttachOptions{}) || want == h.asked[i.Name] {
			known = known || h.asked[i.Name] != (xdp.AttachOptions{})
			continue
		}
		err := h.attachTo(i, want)
		switch {
		case err == nil:
			known = true
			delete(h.missing, i.Name)
		case errors.Is(err, xdp.ErrNotFound) && h.leaves(i.Name):
			continue
		case errors.Is(err, xdp.ErrNotFound):
			absent = append(absent, err)
			h.detachMissing(i.Name, err)
		case h.degraded:
			h.refuse(i.Name, err)
		case errors.Is(err, xdp.ErrBusy) && !h.started:
			h.refuse(i.Name, err)
			absent = append(absent, err)
		default:
			return err
		}
		h.asked[i.Name] = want
	}
	if !known && !h.degraded {
		clear(h.asked)
		return h.listed(errors.Join(absent...))
	}
	return nil
}

// listed adds the names of the existing interfaces to an error about missing ones.
func (h *hooks) listed(err error) error {
	if !errors.Is(err, xdp.ErrNotFound) {
		return err
	}
	_ = h.ns.Do(func() error {
		err = fmt.Errorf("%w; %s", err, h.ns.listed())
		return nil
	})
	return err
}

// unmatched returns the patterns without an interface. They only matter once a flow counts on all interfaces.
func (h *hooks) unmatched() []string {
	if all := h.demand[""]; all.ingress+all.egress == 0 {
		return nil
	}
	return h.patterns.Unmatched(h.interfaces)
}

// refuse notes why an interface is left out. The start goes on without it.
func (h *hooks) refuse(name string, err error) {
	h.log.Warn("counting without an interface", "interface", name, "err", err)
	h.missing[name] = err
}

// lostOn returns the ends of the last outages of an interface, on ingress and egress.
func (h *hooks) lostOn(ifname string) (ends [2]xdp.Moment) {
	for i, at := range []xdp.Hook{xdp.HookIngress, xdp.HookEgress} {
		ends[i], _ = h.rules.Lost(ifname, at)
	}
	return ends
}

// attachTo attaches to the hooks of one interface. Hooks are independent: if one refuses, the other is attached all the same,
// and attached programs stay.
//
// Callers must call refresh after the last interface. Do not call it for each one, as it asks the kernel about all hooks.
func (h *hooks) attachTo(i dataplane.Interface, o xdp.AttachOptions) error {
	o.Mode = map[dataplane.Mode]xdp.Mode{
		dataplane.ModeNative:  xdp.ModeNative,
		dataplane.ModeGeneric: xdp.ModeGeneric,
		dataplane.ModeTCX:     xdp.ModeTCX,
	}[i.Mode]
	o.Beside = h.config.CountsBeside(dataplane.BesideTCX)
	o.Dispatcher = h.config.CountsBeside(dataplane.BesideDispatcher)
	o.Last = h.config.TCX == "last"

	before := h.lostOn(i.Name)
	err := h.ns.Do(func() error {
		var refusals []error
		for _, one := range []xdp.AttachOptions{{Ingress: o.Ingress}, {Egress: o.Egress}} {
			if one == (xdp.AttachOptions{}) {
				continue
			}
			hook := o
			hook.Ingress = one.Ingress
			hook.Egress = one.Egress
			done, err := h.rules.Attach(i.Name, hook)
			if errors.Is(err, xdp.ErrNotFound) {
				return err
			}
			refusals = append(refusals, err)
			for _, a := range done {
				if len(a.Rejected) > 0 {
					h.rejected[i.Name] = errors.Join(a.Rejected...)
				}
			}
		}
		return errors.Join(refusals...)
	})
	if h.lostOn(i.Name) != before {
		h.signal() // an outage has ended, and the engine declares it
	}
	return translate(err) // package xdp names the interface, the hook and the mode
}

// detachMissing notes why an interface is missing. If its link only has another name now, detachMissing detaches from it: the
// configuration does not ask for the new name.
func (h *hooks) detachMissing(name string, why error) {
	h.missing[name] = why
	if err := h.leaveLink(name); err != nil {
		h.log.Warn("detaching from a link that is gone", "interface", name, "err", err)
	}
}

// leaveLink detaches from the last link of a name, unless its present name is counted on, or waited for.
func (h *hooks) leaveLink(name string) error {
	isCounted := func(name string) bool {
		_, listed := h.find(name)
		_, waits := h.patterns.Waiting(name)
		return listed || waits
	}
	return h.ns.Do(func() error { return h.rules.Leave(name, isCounted) })
}

// detachUnconfigured ends the start of the hooks: it detaches from interfaces of the last process if they are not configured now.
func (h *hooks) detachUnconfigured() error {
	for _, a := range h.rules.Attachments() {
		if _, ok := h.find(a.Interface); !ok {
			if err := h.leaveLink(a.Interface); err != nil {
				return fmt.Errorf("detaching from %s, which is not configured any more: %w", a.Interface, err)
			}
		}
	}
	h.started = true
	h.refreshHeld()
	return nil
}

// trim detaches programs from hooks without demand, and lets attach try these again later.
func (h *hooks) trim() error {
	var errs []error
	for _, i := range h.interfaces {
		for _, hook := range []xdp.Hook{xdp.HookIngress, xdp.HookEgress} {
			if h.needs(hookName{i.Name, hook}) {
				continue
			}
			if err := h.rules.Detach(i.Name, hook); err != nil {
				errs = append(errs, fmt.Errorf("detaching from %s: %w", i.Name, err))
			}
		}
	}
	for _, i := range h.interfaces {
		if want := h.wanted(i.Name); want == (xdp.AttachOptions{}) {
			delete(h.asked, i.Name)
			delete(h.missing, i.Name)
		} else if h.asked[i.Name] != (xdp.AttachOptions{}) {
			h.asked[i.Name] = want
		}
	}
	h.refreshHeld()
	return errors.Join(errs...)
}

// askAgain lets attach try interfaces again whose entry has changed.
func (h *hooks) askAgain(before []dataplane.Interface) {
	for _, i := range h.interfaces {
		if !slices.Contains(before, i) {
			delete(h.asked, i.Name)
		}
	}
}
