package xdp

import (
	"errors"
	"fmt"
	"net"
	"slices"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/xdp"
)

// An entry of the configuration stands in hooks.interfaces if it is one name that is not optional. Other interfaces
// stand there while they exist and an entry matches them, in the form of that entry with their own name.

// find returns an interface that is counted on.
func (h *hooks) find(name string) (dataplane.Interface, bool) {
	for _, i := range h.interfaces {
		if i.Name == name {
			return i, true
		}
	}
	return dataplane.Interface{}, false
}

// resolve returns the interfaces of the patterns, as they are now.
func (h *hooks) resolve() ([]dataplane.Interface, error) {
	var out []dataplane.Interface
	waits := false
	for _, i := range h.patterns {
		if waits = waits || i.Waits(); !i.Waits() {
			out = append(out, i)
		}
	}
	if !waits {
		return out, nil
	}
	var there []net.Interface
	err := h.ns.Do(func() (err error) {
		there, err = net.Interfaces()
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("listing the interfaces: %w", err)
	}
	for _, ifi := range there {
		if i, ok := h.waiting(ifi.Name); ok {
			out = append(out, i)
			h.noteFresh(ifi.Name)
		}
	}
	return out, nil
}

// waiting returns the entry of an interface that may come later.
func (h *hooks) waiting(name string) (dataplane.Interface, bool) {
	i, ok := dataplane.FindInterface(h.patterns, name)
	if !ok || !i.Waits() {
		return dataplane.Interface{}, false
	}
	i.Name = name
	return i, true
}

// noteFresh notes that the hooks of an interface were never held.
func (h *hooks) noteFresh(name string) {
	for _, hook := range []xdp.Hook{xdp.HookIngress, xdp.HookEgress} {
		if at := (hookName{name, hook}); h.since[at] == 0 {
			h.fresh[at] = true
		}
	}
}

// comesLater reports whether the flows are counted on a hook from now on, so that they have missed no packet there: its
// interface has come, or is new among the configured ones, or has refused until now. A program of an earlier process,
// or an earlier program of this one, may have been attached to the same interface.
func (h *hooks) comesLater(a xdp.Attachment) bool {
	if h.fresh[hookName{a.Interface, a.Hook}] {
		return h.started || !a.Again
	}
	_, waits := h.waiting(a.Interface)
	return waits && !a.Again
}

// refuse notes why the start goes on without an interface.
func (h *hooks) refuse(name string, err error) {
	h.log.Warn("counting without an interface", "interface", name, "err", err)
	h.missing[name] = err
	h.noteFresh(name)
}

// join counts on an interface that has come, if an entry waits for it.
func (h *hooks) join(name string) {
	i, ok := h.waiting(name)
	if _, there := h.find(name); !ok || there {
		return
	}
	h.noteFresh(name)
	h.changeInterfaces(append(slices.Clone(h.interfaces), i))
}

// leave ends the counting on an interface that is gone, if an entry waits for it, and reports whether it did.
func (h *hooks) leave(name string) bool {
	_, waits := h.waiting(name)
	if _, there := h.find(name); !waits || !there {
		return false
	}
	exists := true
	if err := h.ns.Do(func() error { exists = xdp.Exists(name); return nil }); err != nil || exists {
		return false // another one of the name is there by now
	}
	h.changeInterfaces(slices.DeleteFunc(slices.Clone(h.interfaces), func(i dataplane.Interface) bool { return i.Name == name }))
	return true
}

// changeInterfaces replaces the list after a link has changed.
func (h *hooks) changeInterfaces(list []dataplane.Interface) {
	was := h.interfaces
	if err := h.replace(list); err != nil {
		h.log.Error("changing rules for an interface that came or went", "err", err)
		return
	}
	h.forgetOthers(was)
	h.signal()
}

// relist lists the interfaces again, after events were lost.
func (h *hooks) relist() {
	now, err := h.resolve()
	if err != nil {
		h.log.Error("following the interfaces", "err", err)
		return
	}
	h.changeInterfaces(now)
}

// forgetOthers drops the state of interfaces that are not counted on any more, and detaches their programs.
func (h *hooks) forgetOthers(was []dataplane.Interface) {
	unlisted := func(name string) bool {
		_, ok := h.find(name)
		return !ok
	}
	for name := range h.asked {
		if unlisted(name) {
			delete(h.asked, name)
		}
	}
	for _, m := range []map[string]error{h.missing, h.rejected} {
		for name := range m {
			if unlisted(name) {
				delete(m, name)
			}
		}
	}
	for name := range h.fresh {
		if unlisted(name.ifname) {
			delete(h.fresh, name)
		}
	}
	for _, i := range was {
		if unlisted(i.Name) {
			if err := h.rules.Detach(i.Name); err != nil && !errors.Is(err, xdp.ErrNotFound) {
				h.log.Warn("detaching from an interface that is not counted on", "interface", i.Name, "err", err)
			}
		}
	}
	h.refreshHeld()
	h.refreshUpstream()
}

// unmatched returns an error for each pattern that flows need, that is not optional, and that no interface matches.
func (h *hooks) unmatched() (errs []*unmatchedError) {
	for _, p := range h.patterns {
		if all := h.demand[""]; all.ingress+all.egress == 0 {
			return nil
		}
		if p.Optional || !p.IsPattern() || slices.ContainsFunc(h.interfaces, func(i dataplane.Interface) bool { return p.Matches(i.Name) }) {
			continue
		}
		errs = append(errs, &unmatchedError{p.Name})
	}
	return errs
}

// unmatchedError says that no interface matches a pattern.
type unmatchedError struct{ pattern string }

func (e *unmatchedError) Error() string {
	return fmt.Sprintf("interface %s: no interface matches the pattern", e.pattern)
}
func (e *unmatchedError) Unwrap() error { return xdp.ErrNotFound }

// replaceInterfaces makes list the interfaces. The rules of a flow that counts apart on one of them name every interface.
func (b *Backend) replaceInterfaces(list []dataplane.Interface) error {
	was := b.hooks.interfaces
	var old, fresh []xdp.Rule
	for _, x := range b.flows {
		if len(x.apart) == 0 {
			continue
		}
		for _, step := range []struct {
			list  []dataplane.Interface
			rules *[]xdp.Rule
		}{{was, &old}, {list, &fresh}} {
			b.hooks.interfaces = step.list
			rules, err := b.compile(*x.placed, x, x.drops)
			if err != nil {
				b.hooks.interfaces = was
				return err
			}
			*step.rules = append(*step.rules, rules...)
		}
	}
	b.hooks.interfaces = was
	if err := b.exchange(old, fresh); err != nil {
		return err
	}
	b.hooks.interfaces = list
	return nil
}

// SetInterfaces implements backend.SoftwareBackend.
func (b *Backend) SetInterfaces(list []dataplane.Interface) (err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	h := b.hooks
	if h.closed {
		return errors.New("backend xdp: closed")
	}
	wasPatterns, was := h.patterns, h.interfaces
	h.patterns = slices.Clone(list)
	now, err := h.resolve()
	if err == nil {
		err = b.replaceInterfaces(now)
	}
	if err == nil {
		h.askAgain(was)
		for _, i := range now {
			if !slices.ContainsFunc(was, func(o dataplane.Interface) bool { return o.Name == i.Name }) {
				h.noteFresh(i.Name)
			}
		}
		err = h.attach(true)
	}
	if err != nil {
		h.patterns = wasPatterns
		err = errors.Join(err, b.replaceInterfaces(was)) // rules that were there find room again
		h.askAgain(now)
		err = errors.Join(err, h.attach(true))
		was, now = now, was
	}
	h.forgetOthers(was)
	err = errors.Join(err, b.trim())
	h.signal()
	return err
}

// askAgain lets attach try the interfaces that are not as in the list before.
func (h *hooks) askAgain(before []dataplane.Interface) {
	for _, i := range h.interfaces {
		if !slices.Contains(before, i) {
			delete(h.asked, i.Name)
		}
	}
}

var _ backend.SoftwareBackend = (*Backend)(nil)
