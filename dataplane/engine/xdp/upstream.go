package engine

import (
	"errors"
	"slices"
	"strings"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/xdp"
)

// vlanDevice is a VLAN device and the index of the device that it is above.
type vlanDevice struct {
	name   string
	parent int
}

// received says what a device does to received packets before XDP sees them; index is the interface's index.
type received struct {
	xdp.Receive
	index int
}

// seeNeighbours lists the TCX programs that run before ours, and asks what each device does to packets before
// XDP sees them. The kernel sends no event when one of these changes.
func (b *xdpBackend) seeNeighbours() {
	clear(b.before)
	old := b.receive
	b.receive = make(map[string]received, len(old))
	if len(b.held) == 0 {
		return
	}
	err := b.ns.Do(func() error {
		var errs []error
		for _, a := range b.held {
			var err error
			if a.Hook == xdp.HookEgress {
				b.before[a.Interface], err = b.rules.Before(a.Interface)
				errs = append(errs, err)
				continue
			}
			r, known := old[a.Interface]
			if !known || r.index != a.Index || b.tagged(a) { // only offloads change, and only with tags do they matter
				r.index = a.Index
				if r.Receive, err = xdp.ReceiveOf(a.Interface); err != nil {
					b.log.Debug("looking at the offloads of an interface", "interface", a.Interface, "err", err)
				}
			}
			b.receive[a.Interface] = r
		}
		return errors.Join(errs...)
	})
	if err != nil {
		b.log.Warn("looking at the TCX programs before ours", "err", err)
	}
}

// noteVLAN keeps the list of VLAN devices.
func (b *xdpBackend) noteVLAN(ev xdp.LinkEvent) {
	switch v, known := b.vlans[ev.Index]; {
	case ev.Kind == xdp.LinkRemoved:
		delete(b.vlans, ev.Index)
	case known:
		v.name = ev.Name
		b.vlans[ev.Index] = v
	case ev.VLANOf != 0:
		b.vlans[ev.Index] = vlanDevice{ev.Name, ev.VLANOf}
	}
}

// forgetVLANs precedes a new subscription, which lists all links again.
func (b *xdpBackend) forgetVLANs() {
	b.mu.Lock()
	defer b.mu.Unlock()
	clear(b.vlans)
}

// above lists the VLAN devices above an interface.
func (b *xdpBackend) above(a xdp.Attachment) (names []string) {
	for _, v := range b.vlans {
		if v.parent == a.Index {
			names = append(names, v.name)
		}
	}
	slices.Sort(names)
	return names
}

// matchesTags says whether a flow on an interface matches a VLAN tag.
func (b *xdpBackend) matchesTags(a xdp.Attachment) bool {
	return b.demand[""].tagged+b.demand[a.Interface].tagged > 0
}

// tagged says whether it matters if XDP sees the tags of received packets.
func (b *xdpBackend) tagged(a xdp.Attachment) bool { return b.matchesTags(a) || len(b.above(a)) > 0 }

// beforeXDP lists what happens to packets of an ingress hook before its program sees them, as far as it changes
// what flows count.
func (b *xdpBackend) beforeXDP(a xdp.Attachment) (out []dataplane.Condition) {
	r := b.receive[a.Interface]
	if r.TakesTags && b.tagged(a) {
		out = append(out, takesTags(a.Interface, r.Receive, b.matchesTags(a), b.above(a)))
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
		why = append(why, "flows that match vlan do not see the tag and count nothing")
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
