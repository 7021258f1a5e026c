package xdp

import (
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
