package xdp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

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
	ns         namespace // of the interfaces
	changed    chan struct{}
	stop       context.CancelFunc // nil: the watcher does not run
	stopped    sync.WaitGroup

	mu         *sync.Mutex // Backend.mu: a link event and a control call exclude each other
	demand     demands
	held       []xdp.Attachment     // as of the last refresh
	heldNames  map[hookName]bool    // of held
	heldTicker heldTicker           // of watchHeld
	since      map[hookName]uint64  // the epoch of each held hook
	absent     map[hookName]absence // hooks that are not held, until they are, as far as the reason matters
	left       map[int]struct{}     // by index: links that were counted on, and lost the name
	epochs     uint64               // how many epochs have begun; the first is the counting of an earlier process
	// refreshes is the number of calls of refreshHeld.
	refreshes uint64
	asked     map[string]xdp.AttachOptions // by interface: the hooks of the last attempt to attach, successful or not
	// by interface: why it is not counted on, and why not in a better mode
	missing, rejected map[string]error
	upstream          upstream
	tunnels           tunnels // only the watcher's goroutine uses it
	unpinned          string  // pins that the last checkPins found gone
	closed            bool
}

// demands counts the flows that need counts, by their interface: "" stands for the flows on all interfaces.
type demands map[string]demand

// demand counts the flows that need an interface, by direction.
type demand struct {
	ingress, egress             int
	taggedIngress, taggedEgress int // the part that matches a VLAN tag or its absence
}

// add adds n flows like f, or takes them away if n is negative.
func (d demands) add(f flow.Flow, n int) {
	tagged := 0
	if f.Match.Untagged || len(f.Match.VLAN) > 0 {
		tagged = n
	}

	need := d[f.Interface]
	if f.Direction == flow.Egress {
		need.egress += n
		need.taggedEgress += tagged
	} else {
		need.ingress += n
		need.taggedIngress += tagged
	}
	d[f.Interface] = need
}

// without returns what is left of the demand without a part of it.
func (d demands) without(part demands) demands {
	rest := maps.Clone(d)
	for name, less := range part {
		need := rest[name]
		need.ingress -= less.ingress
		need.egress -= less.egress
		need.taggedIngress -= less.taggedIngress
		need.taggedEgress -= less.taggedEgress
		rest[name] = need
	}
	return rest
}

// sum returns how many flows need an interface, in each direction.
func (d demands) sum(name string) demand {
	all, own := d[""], d[name]
	return demand{ingress: all.ingress + own.ingress, egress: all.egress + own.egress}
}

// hooksOn returns the hooks of an interface that the flows need.
func (d demands) hooksOn(i dataplane.Interface) xdp.AttachOptions {
	need := d.sum(i.Name)
	return xdp.AttachOptions{
		Ingress: need.ingress > 0 && i.Counts(flow.Ingress),
		Egress:  need.egress > 0 && i.Counts(flow.Egress),
	}
}

// absence is why a hook is not held.
type absence uint8

const (
	lost    absence = iota + 1 // it was held: packets have passed uncounted since
	gone                       // it was held, and its interface went away with it: no packet was missed
	renamed                    // its interface was counted on under another name
	early                      // a start did not find its interface, or was refused: an earlier process may have held it
	unheld                     // no process held it: its interface came after the start, or has refused it from the beginning
)

// hookName is one hook of one interface.
type hookName struct {
	ifname string
	hook   xdp.Hook
}

func newHooks(o Options, rules *xdp.RuleSet, ns namespace, mu *sync.Mutex) (*hooks, error) {
	h := &hooks{
		patterns: o.Interfaces,
		degraded: o.Degraded,
		config:   o.Config,
		log:      o.Logger,
		rules:    rules,
		ns:       ns,
		mu:       mu,
		changed:  make(chan struct{}, 1),
		demand:   make(demands),
		since:    make(map[hookName]uint64),
		absent:   make(map[hookName]absence),
		left:     make(map[int]struct{}),
		epochs:   1,
		asked:    make(map[string]xdp.AttachOptions),
		missing:  make(map[string]error),
		rejected: make(map[string]error),
		upstream: newUpstream(o.FreeFor),
		tunnels:  tunnels{policies: ns.policies()},
	}
	var err error
	if h.interfaces, err = h.resolve(); err != nil {
		return nil, err
	}
	h.heldTicker.Ticker = ns.newTicker()
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
func (h *hooks) find(name string) (dataplane.Interface, bool) { return findIn(h.interfaces, name) }

func findIn(list []dataplane.Interface, name string) (dataplane.Interface, bool) {
	for _, i := range list {
		if i.Name == name {
			return i, true
		}
	}
	return dataplane.Interface{}, false
}

// noteFresh notes that the hooks of an interface that are not held were not lost, unless its link was counted on under
// another name.
func (h *hooks) noteFresh(name string) {
	why := early
	if h.started {
		why = unheld
	}
	if len(h.left)+len(h.held) > 0 {
		_ = h.ns.Do(func() error {
			index, err := h.ns.index(name)
			if err == nil {
				_, was := h.left[index]
				if was || slices.ContainsFunc(h.held, func(a xdp.Attachment) bool { return a.Index == index && a.Interface != name }) {
					why = renamed
				}
			}
			return err
		})
	}
	for _, hook := range []xdp.Hook{xdp.HookIngress, xdp.HookEgress} {
		if at := (hookName{name, hook}); h.since[at] == 0 && h.absent[at] == 0 {
			h.absent[at] = why
		}
	}
}

// comesLater reports whether the flows are counted on a hook from now on, so that they have missed no packet there: its
// interface has come, or is new among the configured ones, or has refused until now. A program of an earlier process,
// or an earlier program of this one, may have been attached to the same interface.
func (h *hooks) comesLater(a xdp.Attachment) bool {
	switch h.absent[hookName{a.Interface, a.Hook}] {
	case unheld:
		return true
	case renamed, lost:
		return false
	case early:
		return !a.Again
	}
	_, waits := h.patterns.Waiting(a.Interface)
	return waits && !a.Again
}

// wanted returns the hooks of an interface that active flows need.
func (h *hooks) wanted(name string) xdp.AttachOptions {
	i, ok := h.find(name)
	if !ok {
		return xdp.AttachOptions{}
	}
	return h.demand.hooksOn(i)
}

// refresh asks the kernel about every held hook. Its cost grows with their number: it is called once for a change of any
// number of interfaces.
func (h *hooks) refresh() {
	h.refreshHeld()
	h.refreshUpstream(everyInterface)
}

// refreshOf asks the kernel about the hooks of some interfaces. Whether the others are still held, watchHeld finds out.
func (h *hooks) refreshOf(some func(name string) bool) {
	h.refreshes++
	now := slices.DeleteFunc(slices.Clone(h.held), func(a xdp.Attachment) bool { return some(a.Interface) })
	var names []string
	for _, i := range h.interfaces {
		if some(i.Name) {
			names = append(names, i.Name)
		}
	}
	if len(names) > 0 {
		now = append(now, h.rules.Attachments(names...)...)
	}
	slices.SortFunc(now, func(a, b xdp.Attachment) int { return cmp.Or(cmp.Compare(a.Port, b.Port), cmp.Compare(b.Hook, a.Hook)) })
	h.setHeld(now)
	h.refreshUpstream(some)
}

func everyInterface(string) bool { return true }

// refreshHeld lists the held hooks.
func (h *hooks) refreshHeld() {
	h.refreshes++
	h.setHeld(h.rules.Attachments())
}

// setHeld notes the held hooks. A hook that was not held before begins another epoch, except the first one of an interface
// that came later: it counts from its start on, and has missed nothing.
func (h *hooks) setHeld(now []xdp.Attachment) {
	was := h.held
	h.held = now
	h.heldNames = make(map[hookName]bool, len(now))
	for _, a := range now {
		h.heldNames[hookName{a.Interface, a.Hook}] = true
	}
	h.heldTicker.setHeld(len(h.held))
	for name := range h.since {
		if !h.holds(name) {
			delete(h.since, name)
			if h.needs(name) {
				h.absent[name] = lost
				if h.linkGone(was, name) {
					h.absent[name] = gone
				}
			}
		}
	}
	for _, a := range h.held {
		name := hookName{a.Interface, a.Hook}
		switch {
		case h.since[name] != 0:
			continue
		case h.absent[name] == unheld || h.epochs > 1 && h.comesLater(a):
			h.since[name] = 1
		default:
			h.epochs++
			h.since[name] = h.epochs
		}
		delete(h.absent, name)
		delete(h.left, a.Index)
	}
}

// linkGone reports whether the link of a hook among was is gone, or has another name. Another link may have its name.
func (h *hooks) linkGone(was []xdp.Attachment, name hookName) (is bool) {
	_ = h.ns.Do(func() error {
		index, err := h.ns.index(name.ifname)
		is = err != nil && !h.ns.exists(name.ifname) || err == nil && !slices.ContainsFunc(was, func(a xdp.Attachment) bool {
			return a.Index == index && a.Interface == name.ifname && a.Hook == name.hook
		})
		return nil
	})
	return is
}

// beginGaps begins an epoch of this process on each adopted hook that has a gap: the process before was killed between the
// attach and the declaration.
func (h *hooks) beginGaps() {
	for _, a := range h.held {
		if a.Gap {
			h.epochs++
			h.since[hookName{a.Interface, a.Hook}] = h.epochs
			h.signal() // the engine declares it
		}
	}
}

// refreshUpstream lists the TCX programs that run before ours on some interfaces, and reads how each of these devices
// changes packets before XDP sees them. The kernel sends no event when one of these changes.
func (h *hooks) refreshUpstream(some func(name string) bool) {
	u := &h.upstream
	for name := range u.before {
		if some(name.ifname) || !h.holds(name) {
			delete(u.before, name)
		}
	}
	old := u.receive
	u.receive = make(map[string]received, len(old))
	byTCX := make(map[string]bool)
	for _, a := range h.held {
		byTCX[a.Interface] = byTCX[a.Interface] || a.Hook == xdp.HookIngress && isTCX(a)
	}
	u.beside.forget(byTCX)
	if len(h.held) == 0 {
		return
	}
	err := h.ns.Do(func() error {
		var errs []error
		for _, a := range h.held {
			if !some(a.Interface) {
				if r, known := old[a.Interface]; known {
					u.receive[a.Interface] = r
				}
				continue
			}
			var err error
			if isTCX(a) {
				u.before[hookName{a.Interface, a.Hook}], err = h.rules.Before(a.Interface, a.Hook)
				errs = append(errs, err)
				if a.Hook == xdp.HookIngress {
					holder, taken := h.rules.HolderOf(a.Index, a.Interface)
					holder.Dispatcher = holder.Dispatcher && h.config.CountsBeside(dataplane.BesideDispatcher)
					u.beside.note(a, holder, taken, time.Now())
				}
				continue
			}
			if isDispatched(a) {
				u.before[hookName{a.Interface, a.Hook}], err = h.rules.Before(a.Interface, a.Hook)
				errs = append(errs, err)
			}
			r, known := old[a.Interface]
			if !known || r.index != a.Index || h.needsTags(a) { // only offloads change, and only with tags do they matter
				r.index = a.Index
				if r.receive, err = h.ns.receiveOf(a.Interface); err != nil {
					h.log.Debug("reading the offloads of an interface", "interface", a.Interface, "err", err)
				}
			}
			u.receive[a.Interface] = r
		}
		return errors.Join(errs...)
	})
	if err != nil {
		h.log.Warn("listing the TCX programs before ours", "err", err)
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

func (h *hooks) holds(name hookName) bool { return h.heldNames[name] }

// complete reports whether every wanted hook of an interface is held.
func (h *hooks) complete(i dataplane.Interface) bool {
	want := h.demand.hooksOn(i)
	return (!want.Ingress || h.holds(hookName{i.Name, xdp.HookIngress})) && (!want.Egress || h.holds(hookName{i.Name, xdp.HookEgress}))
}

// needs reports whether active flows need a hook.
func (h *hooks) needs(name hookName) bool {
	want := h.wanted(name.ifname)
	return name.hook == xdp.HookIngress && want.Ingress || name.hook == xdp.HookEgress && want.Egress
}

// epoch returns the latest epoch among the hooks that the flow's rules count on, and 0 when none of them is held. A hook
// that is not held sets backend.Partial.
func (h *hooks) epoch(f flow.Flow) (latest uint64) {
	partial := uint64(0)
	for _, i := range h.interfaces {
		if f.Interface != "" && f.Interface != i.Name || !i.Counts(f.Direction) {
			continue
		}
		name := hookName{i.Name, hookOf(f)}
		if at := h.since[name]; at != 0 {
			latest = max(latest, at)
		} else {
			partial = backend.Partial
		}
	}
	if latest == 0 {
		return 0
	}
	return latest | partial
}

// refused reports whether a hook that the flow's rules are to count on is not held, although its interface is there, and
// whether such a hook may have been held before.
func (h *hooks) refused(f flow.Flow) (is, counted bool) {
	for _, i := range h.interfaces {
		name, err := hookName{i.Name, hookOf(f)}, h.missing[i.Name]
		there := !errors.Is(err, xdp.ErrNotFound) && (err != nil || h.absent[name] != gone) // the watcher may not know it yet
		if (f.Interface == "" || f.Interface == i.Name) && h.needs(name) && h.since[name] == 0 && there {
			is, counted = true, counted || h.absent[name] != unheld
		}
	}
	return is, counted
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
