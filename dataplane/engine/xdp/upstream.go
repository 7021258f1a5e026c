package xdp

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/xdp"
)

// received lists the changes that a device makes to received packets before XDP sees them. index is the
// interface's index.
type received struct {
	receive
	index int
}

// upstream lists the handlers of packets before the programs of this instance: the TCX programs that run first, the
// offloads of the devices, the links above and below them, and IPsec. The kernel sends events for the links only.
type upstream struct {
	before  map[hookName][]xdp.Neighbour // the TCX programs that run before ours
	beside  beside
	receive map[string]received // by interface
	stacks  stacks
	tunnel  string // an IPsec policy of tunnel mode that the last look found, or ""
}

func newUpstream(freeFor time.Duration) upstream {
	return upstream{
		before:  make(map[hookName][]xdp.Neighbour),
		beside:  newBeside(freeFor),
		receive: make(map[string]received),
		stacks:  newStacks(),
	}
}

func isDispatched(a xdp.Attachment) bool { return dataplane.Mode(a.Mode) == dataplane.ModeDispatcher }

func isTCX(a xdp.Attachment) bool { return dataplane.Mode(a.Mode) == dataplane.ModeTCX }

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

// vlansAbove lists the VLAN devices above an interface.
func (u *upstream) vlansAbove(a xdp.Attachment) (names []string) {
	for _, l := range u.stacks.links {
		if l.Kind == "vlan" && l.Parent == a.Index && !l.ParentElsewhere {
			names = append(names, l.Name)
		}
	}
	slices.Sort(names)
	return names
}

func takesTags(ifname string, r receive, tagged bool, above []string) dataplane.Condition {
	c := dataplane.Condition{Code: dataplane.CodeVLANOffload, Severity: dataplane.Medium, Object: ifname, Fix: "ethtool -K " + ifname + " rx-vlan-offload off"}
	var why []string
	if tagged {
		why = append(why, "no flow sees the tag: flows that match vlan count nothing, and flows that match untagged count tagged frames")
	}
	if len(above) > 0 {
		why = append(why, "packets for "+strings.Join(above, ", ")+" are counted 4 bytes short")
	}
	c.Text = "the device takes VLAN tags out of received frames before XDP sees them (rx-vlan-offload): " + strings.Join(why, "; ")
	switch {
	case r.Veth:
		c.Fix = "ethtool -K PEER tx-vlan-offload off, for the other end of this veth pair, which leaves the tag in the frame; then " + c.Fix
	case r.Fixed:
		c.Fix = "mode: tcx for " + ifname + ", which sees the tags that this device cannot leave in the frame, then: flowtally apply"
	}
	return c
}
