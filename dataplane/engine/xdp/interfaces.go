package xdp

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/xdp"
	"github.com/flowtally/flowtally/xdp/links"
)

// CheckInterfaces implements backend.InterfaceSetter.
func (b *Backend) CheckInterfaces(list []dataplane.Interface) error {
	return backend.Patterns(list).CheckExist(b.hooks.ns)
}

// SetInterfaces implements backend.InterfaceSetter.
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
		err = h.attach(true)
	}
	if err != nil {
		h.patterns = wasPatterns
		err = errors.Join(err, b.replaceInterfaces(was)) // these rules had room before
		h.askAgain(now)
		err = errors.Join(err, h.attach(true))
		was, now = now, was
	}

	h.forgetOthers(was)
	err = errors.Join(err, b.trim())
	h.refresh()
	h.signal()
	return err
}

// replaceInterfaces makes list the interfaces. A flow that counts apart has rules for each interface, so it gets other rules.
// After an error the interfaces are as before.
func (b *Backend) replaceInterfaces(list []dataplane.Interface) error {
	was := b.hooks.interfaces
	old, err := b.rulesApart()
	if err != nil {
		return err
	}

	b.hooks.interfaces = list
	fresh, err := b.rulesApart()
	if err == nil {
		err = b.exchange(context.Background(), old, fresh)
	}
	if err != nil {
		b.hooks.interfaces = was
	}
	return err
}

// rulesApart returns the rules of all flows with an interface apart.
func (b *Backend) rulesApart() (all []xdp.Rule, err error) {
	for _, x := range b.flows {
		if len(x.apart) == 0 {
			continue
		}
		rules, err := b.compile(*x.placed, x, x.drops)
		if err != nil {
			return nil, err
		}
		all = append(all, rules...)
	}
	return all, nil
}

// resolve returns the interfaces to count on now: an interface may have come or gone since the last call.
func (h *hooks) resolve() ([]dataplane.Interface, error) {
	list, err := h.patterns.Resolve(h.ns)
	if err != nil {
		return nil, fmt.Errorf("listing the interfaces: %w", err)
	}
	return list, nil
}

// find returns the entry of a counted interface.
func (h *hooks) find(name string) (dataplane.Interface, bool) { return findIn(h.interfaces, name) }

func findIn(list []dataplane.Interface, name string) (dataplane.Interface, bool) {
	for _, i := range list {
		if i.Name == name {
			return i, true
		}
	}
	return dataplane.Interface{}, false
}

// follow returns the list of interfaces after an event.
func (h *hooks) follow(ev links.Event, list []dataplane.Interface) []dataplane.Interface {
	switch ev.Kind {
	case links.Added:
		return h.join(ev.Name, list)
	case links.Removed:
		list = h.leave(ev.Name, list)
	case links.Renamed:
		list = h.join(ev.Name, h.leave(ev.OldName, list))
	}
	return list
}

// join adds a new interface to the list, if an entry waits for it.
func (h *hooks) join(name string, list []dataplane.Interface) []dataplane.Interface {
	i, waits := h.patterns.Waiting(name)
	if _, listed := findIn(list, name); !waits || listed {
		return list
	}
	return append(list, i)
}

// leave removes an interface from the list if it does not exist any more. An interface stays listed, as missing, if its entry does
// not wait.
func (h *hooks) leave(name string, list []dataplane.Interface) []dataplane.Interface {
	_, waits := h.patterns.Waiting(name)
	if _, listed := findIn(list, name); !waits || !listed {
		return list
	}

	exists := true
	if err := h.ns.Do(func() error { exists = h.ns.exists(name); return nil }); err != nil || exists {
		return list // by now another interface has the name
	}
	return slices.DeleteFunc(list, func(i dataplane.Interface) bool { return i.Name == name })
}

// leaves is leave for the interfaces of h. It reports whether the interface has left. Callers must call refresh afterwards.
func (h *hooks) leaves(name string) bool {
	list := h.leave(name, slices.Clone(h.interfaces))
	if len(list) == len(h.interfaces) {
		return false
	}
	h.changeInterfaces(list)
	return true
}

// changeInterfaces replaces the list after links have changed. Callers must call refresh afterwards.
func (h *hooks) changeInterfaces(list []dataplane.Interface) {
	was := h.interfaces
	if err := h.replace(list); err != nil {
		h.log.Error("changing rules for an interface that came or went", "err", err)
		return
	}
	h.forgetOthers(was)
	h.signal()
}

// relist lists the interfaces again, because events may have been lost.
func (h *hooks) relist() {
	now, err := h.resolve()
	if err != nil {
		h.log.Error("following the interfaces", "err", err)
		return
	}
	h.changeInterfaces(now)
}

// forgetOthers drops the state of interfaces outside of the list, and detaches from those of was. Callers must call refresh
// afterwards.
func (h *hooks) forgetOthers(was []dataplane.Interface) {
	listed := make(map[string]bool, len(h.interfaces))
	for _, i := range h.interfaces {
		listed[i.Name] = true
	}
	for name := range h.asked {
		if !listed[name] {
			delete(h.asked, name)
		}
	}
	for _, m := range []map[string]error{h.missing, h.rejected} {
		for name := range m {
			if !listed[name] {
				delete(m, name)
			}
		}
	}
	for _, i := range was {
		if listed[i.Name] {
			continue
		}
		if err := h.leaveLink(i.Name); err != nil {
			h.log.Warn("detaching from an interface that is not counted on", "interface", i.Name, "err", err)
		}
	}
}
