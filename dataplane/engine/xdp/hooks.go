package xdp

import (
	"cmp"
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
	rules      *xdp.Datapath
	ns         namespace // of the interfaces
	changed    chan struct{}
	stop       context.CancelFunc // nil: the watcher does not run
	stopped    sync.WaitGroup

	mu         *sync.Mutex // Backend.mu: a link event and a control call exclude each other
	demand     demands
	held       []xdp.Attachment  // as of the last refresh
	heldNames  map[hookName]bool // of held
	heldTicker heldTicker        // of watchHeld
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

// hookName is one hook of one interface.
type hookName struct {
	ifname string
	hook   xdp.Hook
}

func newHooks(o Options, rules *xdp.Datapath, ns namespace, mu *sync.Mutex) (*hooks, error) {
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
		now = append(now, h.look(names...)...)
	}
	slices.SortFunc(now, func(a, b xdp.Attachment) int { return cmp.Or(cmp.Compare(a.Port, b.Port), cmp.Compare(b.Hook, a.Hook)) })
	h.setHeld(now)
	h.refreshUpstream(some)
}

func everyInterface(string) bool { return true }

// refreshHeld lists the held hooks.
func (h *hooks) refreshHeld() {
	h.refreshes++
	h.setHeld(h.look())
}

// look lists the held hooks of some interfaces, or of all where none is named. The ledger learns of those that were lost.
func (h *hooks) look(ifnames ...string) (held []xdp.Attachment) {
	_ = h.ns.Do(func() error {
		held = h.rules.Look(ifnames...)
		return nil
	})
	return held
}

// setHeld notes the held hooks.
func (h *hooks) setHeld(now []xdp.Attachment) {
	h.held = now
	h.heldNames = make(map[hookName]bool, len(now))
	for _, a := range now {
		h.heldNames[hookName{a.Interface, a.Hook}] = true
	}

	watched := len(h.held)
	if watched == 0 && slices.ContainsFunc(h.interfaces, h.lacksHook) { // the only hook was lost again right after its attaching
		watched = 1
	}
	h.heldTicker.setHeld(watched)
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

// lost returns when the last outage of the hooks that a flow's rules count on ended, and whether one is under way.
func (h *hooks) lost(f flow.Flow) (last xdp.Moment, open bool) {
	return h.rules.Lost(f.Interface, hookOf(f))
}

// rely notes that a total counts by the hooks of a flow from now on. A hook of an interface that does not exist misses no
// packet.
func (h *hooks) rely(f flow.Flow) {
	for _, i := range h.interfaces {
		if !h.countsOn(f, i) || h.holds(hookName{i.Name, hookOf(f)}) || errors.Is(h.missing[i.Name], xdp.ErrNotFound) {
			continue
		}
		if err := h.rules.Expect(i.Name, hookOf(f)); err != nil {
			h.log.Warn("noting that packets pass uncounted", "interface", i.Name, "err", err)
		}
	}
}

// countsOn reports whether the rules of a flow are to count on an interface.
func (h *hooks) countsOn(f flow.Flow, i dataplane.Interface) bool {
	return (f.Interface == "" || f.Interface == i.Name) && i.Counts(f.Direction)
}

// completeSince returns from when on every hook that the flow's rules are to count on is held. ok is false if one is not.
func (h *hooks) completeSince(f flow.Flow) (since xdp.Moment, ok bool) {
	for _, i := range h.interfaces {
		if !h.countsOn(f, i) {
			continue
		}
		at, covered := h.rules.CoveredSince(i.Name, hookOf(f))
		switch {
		case !covered:
			return 0, false
		case !ok || at.After(since):
			since, ok = at, true
		}
	}
	return since, ok
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
