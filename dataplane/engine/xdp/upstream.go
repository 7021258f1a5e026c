package xdp

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/xdp"
)

// vlanDevice is a VLAN device and the index of the device that it is above.
type vlanDevice struct {
	name   string
	parent int
}

// received lists the changes that a device makes to received packets before XDP sees them. index is the
// interface's index.
type received struct {
	xdp.Receive
	index int
}

// upstream lists the handlers of packets before the programs of this instance: the TCX programs that run first, the
// offloads of the devices, and the VLAN devices above them. The kernel sends an event for VLAN devices only.
type upstream struct {
	before  map[hookName][]xdp.Neighbour // the TCX programs that run before ours
	beside  beside
	receive map[string]received // by interface
	vlans   map[int]vlanDevice  // by index
}

func newUpstream() upstream {
	return upstream{
		before: make(map[hookName][]xdp.Neighbour), beside: newBeside(), receive: make(map[string]received), vlans: make(map[int]vlanDevice),
	}
}

// refreshUpstream lists the TCX programs that run before ours, and reads how each device changes packets
// before XDP sees them. The kernel sends no event when one of these changes.
func (h *hooks) refreshUpstream() {
	u := &h.upstream
	clear(u.before)
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
			var err error
			if isTCX(a) {
				u.before[hookName{a.Interface, a.Hook}], err = h.rules.Before(a.Interface, a.Hook)
				errs = append(errs, err)
				if a.Hook == xdp.HookIngress {
					holder, taken := xdp.HolderOf(a.Index, a.Interface)
					u.beside.note(a, holder, taken, time.Now())
				}
				continue
			}
			r, known := old[a.Interface]
			if !known || r.index != a.Index || h.needsTags(a) { // only offloads change, and only with tags do they matter
				r.index = a.Index
				if r.Receive, err = xdp.ReceiveOf(a.Interface); err != nil {
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

func isTCX(a xdp.Attachment) bool { return dataplane.Mode(a.Mode) == dataplane.ModeTCX }

// noteVLAN updates the list of VLAN devices.
func (u *upstream) noteVLAN(ev xdp.LinkEvent) {
	switch v, known := u.vlans[ev.Index]; {
	case ev.Kind == xdp.LinkRemoved:
		delete(u.vlans, ev.Index)
	case known:
		v.name = ev.Name
		u.vlans[ev.Index] = v
	case ev.VLANOf != 0:
		u.vlans[ev.Index] = vlanDevice{ev.Name, ev.VLANOf}
	}
}

// vlansAbove lists the VLAN devices above an interface.
func (u *upstream) vlansAbove(a xdp.Attachment) (names []string) {
	for _, v := range u.vlans {
		if v.parent == a.Index {
			names = append(names, v.name)
		}
	}
	slices.Sort(names)
	return names
}

// matchesTags reports whether a flow on an interface matches a VLAN tag.
func (h *hooks) matchesTags(a xdp.Attachment) bool {
	return h.demand[""].tagged+h.demand[a.Interface].tagged > 0
}

// needsTags reports whether it matters that XDP sees the tags of received packets.
func (h *hooks) needsTags(a xdp.Attachment) bool {
	return h.matchesTags(a) || len(h.upstream.vlansAbove(a)) > 0
}

// upstreamConditions lists the changes to packets of an ingress hook before its program sees them that change the
// counts of flows.
func (h *hooks) upstreamConditions(a xdp.Attachment) (out []dataplane.Condition) {
	if isTCX(a) { // tags and merged segments are as on egress
		if holder, taken := h.upstream.beside.holder[a.Interface]; taken {
			out = append(out, besideCondition(a.Interface, holder))
		}
		return out
	}
	r := h.upstream.receive[a.Interface]
	if r.TakesTags && h.needsTags(a) {
		out = append(out, takesTags(a.Interface, r.Receive, h.matchesTags(a), h.upstream.vlansAbove(a)))
	}
	if r.Merges && a.Mode == "native" { // generic mode has its own condition
		out = append(out, dataplane.Condition{
			Code: dataplane.CodeXDPMerged, Severity: dataplane.Medium, Object: a.Interface,
			Text: "a virtual machine, or another program, can send through this device buffers of many segments (IFF_VNET_HDR); XDP counts such a buffer as one packet, without the headers of the others",
			Fix:  "open the device without IFF_VNET_HDR (QEMU: vnet_hdr=off), or turn segmentation off in the virtual machine: ethtool -K DEVICE tso off gso off",
		})
	}
	return out
}

func takesTags(ifname string, r xdp.Receive, tagged bool, above []string) dataplane.Condition {
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
		c.Fix = "the device cannot turn rx-vlan-offload off: match without vlan, on the VLAN device"
	}
	return c
}
