package xdp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/xdp"
)

// hooks attaches programs to the interfaces where flows need them, and attaches them again after a loss. All
// methods are called with mu held, except watch, stopWatch and the methods of the watcher's goroutine (links.go).
type hooks struct {
	patterns   backend.Patterns                       // as configured
	interfaces []dataplane.Interface                  // of patterns, see resolve
	replace    func(list []dataplane.Interface) error // Backend.replaceInterfaces
	started    bool                                   // the hooks of an earlier process are adopted or detached
	degraded   bool                                   // a refused interface does not end the start
	config     dataplane.XDPConfig
	log        *slog.Logger
	rules      *xdp.RuleSet
	ns         *backend.Netns // of the interfaces
	changed    chan struct{}
	stop       context.CancelFunc // nil: the watcher does not run
	stopped    sync.WaitGroup

	mu     *sync.Mutex                  // Backend.mu: a link event and a control call exclude each other
	demand map[string]demand            // by interface, "" for all: how many flows need counts there
	held   []xdp.Attachment             // as of the last refreshHeld
	since  map[hookName]uint64          // the epoch of each held hook
	fresh  map[hookName]bool            // hooks of interfaces that came later, or were refused, until they are held
	epochs uint64                       // how many epochs have begun
	asked  map[string]xdp.AttachOptions // by interface: the hooks of the last attempt to attach, successful or not
	// by interface: why it is not counted on, and why not in a better mode
	missing, rejected map[string]error
	upstream          upstream
	unpinned          string // pins that the last checkPins found gone
	closed            bool
}

// demand counts the flows that need an interface, by direction.
type demand struct {
	ingress, egress int
	tagged          int // how many of ingress match a VLAN tag or its absence
}

// hookName is one hook of one interface.
type hookName struct {
	ifname string
	hook   xdp.Hook
}

func newHooks(o Options, rules *xdp.RuleSet, ns *backend.Netns, mu *sync.Mutex) (*hooks, error) {
	h := &hooks{
		patterns: o.Interfaces, degraded: o.Degraded, config: o.Config, log: o.Logger, rules: rules, ns: ns, mu: mu,
		changed: make(chan struct{}, 1), demand: make(map[string]demand), since: make(map[hookName]uint64), fresh: make(map[hookName]bool),
		asked: make(map[string]xdp.AttachOptions), missing: make(map[string]error), rejected: make(map[string]error),
		upstream: newUpstream(),
	}
	var err error
	if h.interfaces, err = h.resolve(); err != nil {
		return nil, err
	}
	h.refreshHeld()
	return h, nil
}

func hookOf(f flow.Flow) xdp.Hook {
	if f.Direction == flow.Egress {
		return xdp.HookEgress
	}
	return xdp.HookIngress
}

// resolve returns the interfaces of the configuration, as they are now.
func (h *hooks) resolve() ([]dataplane.Interface, error) {
	list, later, err := h.patterns.Resolve(h.ns)
	if err != nil {
		return nil, fmt.Errorf("listing the interfaces: %w", err)
	}
	for _, name := range later {
		h.noteFresh(name)
	}
	return list, nil
}

// find returns an interface that is counted on.
func (h *hooks) find(name string) (dataplane.Interface, bool) {
	for _, i := range h.interfaces {
		if i.Name == name {
			return i, true
		}
	}
	return dataplane.Interface{}, false
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
	_, waits := h.patterns.Waiting(a.Interface)
	return waits && !a.Again
}

// addDemand adds n flows to the flows that need the hooks of f.
func (h *hooks) addDemand(f flow.Flow, n int) {
	d := h.demand[f.Interface]
	if f.Direction == flow.Egress {
		d.egress += n
	} else {
		d.ingress += n
		if f.Match.Untagged || len(f.Match.VLAN) > 0 {
			d.tagged += n
		}
	}
	h.demand[f.Interface] = d
}

// wanted returns the hooks of an interface that active flows need.
func (h *hooks) wanted(name string) xdp.AttachOptions {
	i, ok := h.find(name)
	if !ok {
		return xdp.AttachOptions{}
	}
	all, own := h.demand[""], h.demand[name]
	return xdp.AttachOptions{
		Ingress: all.ingress+own.ingress > 0 && i.Counts(flow.Ingress), Egress: all.egress+own.egress > 0 && i.Counts(flow.Egress),
	}
}

// attach attaches to the hooks that are needed and were not tried yet. A missing interface is noted and
// waited for, unless known is false and no interface was ever found: then the configuration is wrong.
// known says that an earlier process, or this one, has counted on some interface.
func (h *hooks) attach(known bool) error {
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
		case errors.Is(err, xdp.ErrNotFound) && h.leave(i.Name):
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
		return errors.Join(absent...)
	}
	return nil
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

// attachTo attaches to hooks of one interface. Programs that are attached stay as they are.
func (h *hooks) attachTo(i dataplane.Interface, o xdp.AttachOptions) error {
	o.Mode = map[dataplane.Mode]xdp.Mode{
		dataplane.ModeNative: xdp.ModeNative, dataplane.ModeGeneric: xdp.ModeGeneric, dataplane.ModeTCX: xdp.ModeTCX,
	}[i.Mode]
	o.Beside = h.config.CountsBeside()
	o.Last = h.config.TCX == "last"
	err := h.ns.Do(func() error {
		done, err := h.rules.Attach(i.Name, o)
		for _, a := range done {
			if a.Fresh {
				delete(h.since, hookName{i.Name, a.Hook})
			}
			if len(a.Rejected) > 0 {
				h.rejected[i.Name] = errors.Join(a.Rejected...)
			}
		}
		return err
	})
	h.refreshHeld()
	h.refreshUpstream()
	return translate(err) // it names the interface, the hook and the mode
}

// detachMissing notes why an interface is not counted on, and detaches the programs from the link that
// had its name: the configuration does not ask for that link under another name.
func (h *hooks) detachMissing(name string, why error) {
	h.missing[name] = why
	if err := h.rules.Detach(name); err != nil && !errors.Is(err, xdp.ErrNotFound) {
		h.log.Warn("detaching from a link that is gone", "interface", name, "err", err)
	}
	h.refreshHeld()
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

// refreshHeld lists the held hooks. A hook that was not held at the last call begins another epoch, except the first one
// of an interface that came later: it counts from its start on, and has missed nothing.
func (h *hooks) refreshHeld() {
	h.held = h.rules.Attachments()
	for name := range h.since {
		if !h.holds(name) {
			delete(h.since, name)
		}
	}
	for _, a := range h.held {
		name := hookName{a.Interface, a.Hook}
		switch {
		case h.since[name] != 0:
			continue
		case h.epochs > 0 && h.comesLater(a):
			h.since[name] = 1
		default:
			h.epochs++
			h.since[name] = h.epochs
		}
		delete(h.fresh, name)
	}
}

// checkReach returns an error if a flow can match no frame of the interfaces that are held for it. One of several
// interfaces without Ethernet is no error: the flow counts on the others.
func (h *hooks) checkReach(f flow.Flow) error {
	if f.Match.Eth == nil && len(f.Match.VLAN) == 0 && !f.Match.Untagged {
		return nil
	}
	var without []string
	for _, a := range h.held {
		if a.Hook != hookOf(f) || f.Interface != "" && f.Interface != a.Interface {
			continue
		}
		if !a.Layer3 {
			return nil
		}
		without = append(without, a.Interface)
	}
	if len(without) == 0 {
		return nil
	}
	return fmt.Errorf("flow %q: %w: it asks for an Ethernet header or a VLAN tag, and frames of %s begin with IP; leave out \"eth\", \"vlan\" and \"untagged\"",
		f.Name, dataplane.ErrInvalid, strings.Join(without, " and "))
}

func (h *hooks) holds(name hookName) bool {
	return slices.ContainsFunc(h.held, func(a xdp.Attachment) bool { return a.Interface == name.ifname && a.Hook == name.hook })
}

// complete reports whether every wanted hook of an interface is held.
func (h *hooks) complete(name string) bool {
	want := h.wanted(name)
	return (!want.Ingress || h.holds(hookName{name, xdp.HookIngress})) && (!want.Egress || h.holds(hookName{name, xdp.HookEgress}))
}

// trim detaches programs from hooks that no flow needs.
func (h *hooks) trim() error {
	var errs []error
	for _, a := range slices.Clone(h.held) {
		want := h.wanted(a.Interface)
		if a.Hook == xdp.HookIngress && want.Ingress || a.Hook == xdp.HookEgress && want.Egress {
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

// epoch returns the latest epoch among the hooks that the flow's rules count on, and 0 when one of them is not held. A
// hook that was never held, since it is refused, sets backend.Partial.
func (h *hooks) epoch(f flow.Flow) (latest uint64) {
	partial := uint64(0)
	for _, i := range h.interfaces {
		if f.Interface != "" && f.Interface != i.Name || !i.Counts(f.Direction) {
			continue
		}
		name := hookName{i.Name, hookOf(f)}
		switch at := h.since[name]; {
		case at != 0:
			latest = max(latest, at)
		case h.fresh[name]:
			partial = backend.Partial
		default:
			return 0
		}
	}
	if latest == 0 {
		return 0
	}
	return latest | partial
}

// source returns the held interfaces that count a flow, and their modes.
func (h *hooks) source(f flow.Flow) dataplane.Source {
	hook := hookOf(f)
	src := dataplane.Source{Backend: flow.XDP}
	for _, a := range h.held {
		if a.Hook == hook && (f.Interface == "" || f.Interface == a.Interface) {
			src.Devices = append(src.Devices, dataplane.Device{Backend: flow.XDP, Name: a.Interface, Mode: dataplane.Mode(a.Mode)})
		}
	}
	return src
}
