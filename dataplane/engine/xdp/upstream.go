package xdp

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/xdp"
)

// received is what a device does to packets, as of the last time we asked. An interface of the same name may be another device by
// now, hence the index.
type received struct {
	receive
	index int
}

// upstream is what changes, hides or repeats packets before our programs see them: other XDP and TCX programs, offloads of the
// devices, links above each other, and IPsec. Only for the links does the kernel send events, so we have to ask about the rest.
type upstream struct {
	before  map[hookName][]xdp.Neighbour // programs in front of ours, on a TCX hook or in a dispatcher
	beside  beside
	receive map[string]received // by interface
	stacks  stacks
	tunnel  string // the policy found by tunnels, or ""
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

// refreshUpstream asks which programs run before ours on some interfaces, and what their devices do to packets. What it knows of
// the other interfaces stays.
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
			if !known || r.index != a.Index || h.needsTags(a) { // only offloads can change, and only tags depend on them
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

// vlansAbove lists the VLAN devices of this namespace above an interface.
func (u *upstream) vlansAbove(a xdp.Attachment) (names []string) {
	for _, l := range u.stacks.links {
		if l.Kind == "vlan" && l.Parent == a.Index && !l.ParentElsewhere {
			names = append(names, l.Name)
		}
	}
	slices.Sort(names)
	return names
}

// takesTags returns the condition of a device with rx-vlan-offload. above are the VLAN devices above it, and tagged
// says whether flows ask for tags.
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
