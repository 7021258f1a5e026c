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

// hooks attaches programs to the interfaces where flows need them, and attaches them again after a loss.
//
// Callers must hold mu, except for look and lost, which only use rules, for watch and stopWatch, and for the methods of the
// watcher's goroutines (links.go), which lock mu themselves.
type hooks struct {
	patterns   backend.Patterns                       // as configured
	interfaces []dataplane.Interface                  // that patterns name now; only replace changes the list
	replace    func(list []dataplane.Interface) error // Backend.replaceInterfaces
	started    bool                                   // RemoveStale has detached the rest of the earlier process
	degraded   bool                                   // Options.Degraded
	config     dataplane.XDPConfig
	log        *slog.Logger
	rules      *xdp.Datapath
	ns         namespace // of the interfaces
	changed    chan struct{}
	stop       context.CancelFunc // nil: the watcher does not run
	stopped    sync.WaitGroup

	mu         *sync.Mutex // Backend.mu, so link events and control calls exclude each other
	demand     demands
	held       []xdp.Attachment  // as of the last refresh
	heldNames  map[hookName]bool // of held
	heldTicker heldTicker        // of watchHeld
	refreshes  uint64            // see State

	asked    map[string]xdp.AttachOptions // by interface: the hooks of the last attempt to attach, successful or not
	missing  map[string]error             // by interface: why we do not count on it
	rejected map[string]error             // by interface: why not in a better mode
	upstream upstream
	tunnels  tunnels // only watchLinks may use it
	unpinned string  // what the last checkPins found wrong, or ""
	closed   bool
}

// demands counts the active flows by their interface, with "" for flows on all interfaces. Hooks without demand are detached.
type demands map[string]demand

// demand counts flows by direction.
type demand struct {
	ingress, egress             int
	taggedIngress, taggedEgress int // those of them that ask for a VLAN tag or for its absence
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

// hooksOn returns the hooks of an interface that flows need, in the directions that its entry allows.
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

// wanted is hooksOn of an interface by name. It returns none for an interface that is not counted on.
func (h *hooks) wanted(name string) xdp.AttachOptions {
	i, ok := h.find(name)
	if !ok {
		return xdp.AttachOptions{}
	}
	return h.demand.hooksOn(i)
}

// refresh asks the kernel about every hook. That costs system calls for each, so callers should refresh once after a change of
// any number of interfaces.
func (h *hooks) refresh() {
	h.refreshHeld()
	h.refreshUpstream(everyInterface)
}

// refreshOf is refresh for the hooks of some interfaces. If one of the others was lost, watchHeld finds out.
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

// refreshHeld is refresh of held alone, without what happens to packets before our programs.
func (h *hooks) refreshHeld() {
	h.refreshes++
	h.setHeld(h.look())
}

// look asks the kernel which hooks of some interfaces are held, or of all interfaces if none is named. Package xdp notes in its
// ledger which were lost.
func (h *hooks) look(ifnames ...string) (held []xdp.Attachment) {
	_ = h.ns.Do(func() error {
		held = h.rules.Look(ifnames...)
		return nil
	})
	return held
}

// setHeld notes the held hooks, and how often watchHeld must query them.
func (h *hooks) setHeld(now []xdp.Attachment) {
	h.held = now
	h.heldNames = make(map[hookName]bool, len(now))
	for _, a := range now {
		h.heldNames[hookName{a.Interface, a.Hook}] = true
	}

	watched := len(h.held)
	if watched == 0 && slices.ContainsFunc(h.interfaces, h.lacksHook) {
		watched = 1 // the only hook was lost right after we attached to it: without a tick nobody would notice
	}
	h.heldTicker.setHeld(watched)
}

// checkReach returns an error if a flow asks for Ethernet, and no interface that is held for it has Ethernet: the flow could
// never count a packet. If only some of the interfaces lack it, the flow counts on the others.
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

// lost returns when the last outage of a flow's hooks ended, and whether one is under way.
func (h *hooks) lost(f flow.Flow) (last xdp.Moment, open bool) {
	return h.rules.Lost(f.Interface, hookOf(f))
}

// rely notes that a total depends on the hooks of a flow from now on. Where one is not held, an outage begins, unless its
// interface does not exist: then no packets pass there.
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

// countsOn reports whether a flow should count on an interface, whether or not its hook is held.
func (h *hooks) countsOn(f flow.Flow, i dataplane.Interface) bool {
	return (f.Interface == "" || f.Interface == i.Name) && i.Counts(f.Direction)
}

// completeSince returns since when all hooks on which a flow should count are held. ok is false if one is not held now.
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

// source returns the interfaces on which a flow counts now, with their modes.
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
