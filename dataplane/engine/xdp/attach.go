package xdp

import (
	"errors"
	"fmt"
	"slices"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/xdp"
)

// attach attaches to the hooks that are needed and were not tried yet. A missing interface is noted and waited for, unless
// known is false and no interface was ever found: then the configuration is wrong. known says that an earlier process, or
// this one, has counted on some interface. added is the part of the demand that comes from flows whose totals begin; nil
// if all totals go on.
func (h *hooks) attach(known bool, added demands) error {
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
		done, err := h.attachTo(i, want)
		switch {
		case err == nil:
			known = true
			delete(h.missing, i.Name)
			h.declareFirst(i, done, added)
		case errors.Is(err, xdp.ErrNotFound) && h.leaves(i.Name):
			continue
		case errors.Is(err, xdp.ErrNotFound):
			absent = append(absent, err)
			h.detachMissing(i.Name, err)
			h.noteFresh(i.Name)
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

// declareFirst declares the attachments of hooks that only the added flows need: no total counted there before, so none
// has missed a packet. A kill before the engine declares the hook would cost these flows a discontinuity. During a start
// it declares nothing, because the flows may go on from an earlier process.
func (h *hooks) declareFirst(i dataplane.Interface, done []xdp.Attachment, added demands) {
	if !h.started {
		return
	}

	before := h.demand.without(added).hooksOn(i)
	for _, a := range done {
		neededBefore := a.Hook == xdp.HookIngress && before.Ingress || a.Hook == xdp.HookEgress && before.Egress
		if a.Fresh && !neededBefore {
			h.rules.Declared(a)
		}
	}
}

// listed adds the existing interfaces to an error about interfaces that do not exist.
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

// unmatched returns the patterns that flows need and that no interface matches.
func (h *hooks) unmatched() []string {
	if all := h.demand[""]; all.ingress+all.egress == 0 {
		return nil
	}
	return h.patterns.Unmatched(h.interfaces)
}

// refuse notes why the start goes on without an interface.
func (h *hooks) refuse(name string, err error) {
	h.log.Warn("counting without an interface", "interface", name, "err", err)
	h.missing[name] = err
	h.noteFresh(name)
}

// attachTo attaches to hooks of one interface. Programs that are attached stay as they are. The caller calls refresh
// when it has attached to all of its interfaces: refresh asks the kernel about every held hook.
func (h *hooks) attachTo(i dataplane.Interface, o xdp.AttachOptions) (done []xdp.Attachment, err error) {
	o.Mode = map[dataplane.Mode]xdp.Mode{
		dataplane.ModeNative: xdp.ModeNative, dataplane.ModeGeneric: xdp.ModeGeneric, dataplane.ModeTCX: xdp.ModeTCX,
	}[i.Mode]
	o.Beside, o.Dispatcher = h.config.CountsBeside(dataplane.BesideTCX), h.config.CountsBeside(dataplane.BesideDispatcher)
	o.Last = h.config.TCX == "last"
	err = h.ns.Do(func() error {
		done, err = h.rules.Attach(i.Name, o)
		if err != nil && len(done) > 0 && !done[0].Again { // refused, and no earlier process has counted there
			for _, at := range []hookName{{i.Name, xdp.HookIngress}, {i.Name, xdp.HookEgress}} {
				if why := h.absent[at]; h.since[at] == 0 && (why == 0 || why == early) {
					h.absent[at] = unheld
				}
			}
		}
		for _, a := range done {
			if a.Fresh || a.Moved {
				delete(h.since, hookName{i.Name, a.Hook})
				h.signal() // the engine declares it
			}
			if len(a.Rejected) > 0 {
				h.rejected[i.Name] = errors.Join(a.Rejected...)
			}
		}
		return err
	})
	return done, translate(err) // it names the interface, the hook and the mode
}

// detachMissing notes why an interface is not counted on, and detaches the programs from the link that
// had its name: the configuration does not ask for that link under another name.
func (h *hooks) detachMissing(name string, why error) {
	h.missing[name] = why
	if err := h.rules.Detach(name); err != nil && !errors.Is(err, xdp.ErrNotFound) {
		h.log.Warn("detaching from a link that is gone", "interface", name, "err", err)
	}
}

// detachUnconfigured detaches programs from interfaces that are not counted on now.
func (h *hooks) detachUnconfigured() error {
	for _, a := range h.rules.Attachments() {
		if _, ok := h.find(a.Interface); !ok {
			if err := h.rules.Detach(a.Interface); err != nil && !errors.Is(err, xdp.ErrNotFound) {
				return fmt.Errorf("detaching from %s, which is not configured any more: %w", a.Interface, err)
			}
		}
	}
	h.started = true
	h.refreshHeld()
	return nil
}

// trim detaches programs from hooks that no flow needs.
func (h *hooks) trim() error {
	var errs []error
	for _, a := range slices.Clone(h.held) {
		if h.needs(hookName{a.Interface, a.Hook}) {
			continue
		}
		if err := h.rules.Detach(a.Interface, a.Hook); err != nil && !errors.Is(err, xdp.ErrNotFound) {
			errs = append(errs, fmt.Errorf("detaching from %s: %w", a.Interface, err))
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
	for name, why := range h.absent {
		if (why == lost || why == gone) && !h.needs(name) { // the next flow that needs it has missed nothing
			delete(h.absent, name)
		}
	}
	h.refreshHeld()
	return errors.Join(errs...)
}

// askAgain lets attach try the interfaces that are not as in the list before.
func (h *hooks) askAgain(before []dataplane.Interface) {
	for _, i := range h.interfaces {
		if !slices.Contains(before, i) {
			delete(h.asked, i.Name)
		}
	}
}
