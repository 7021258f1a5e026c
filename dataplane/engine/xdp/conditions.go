package xdp

import (
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/probe"
	"github.com/flowtally/flowtally/xdp"
)

// conditions lists everything that makes counts incomplete or costly: interfaces without a program or in generic mode, programs
// and devices in front of ours, which change packets, stacked interfaces, IPsec tunnels, and lost pins.
func (h *hooks) conditions() []dataplane.Condition {
	if h.closed {
		return nil
	}
	var out []dataplane.Condition
	for _, pattern := range h.unmatched() {
		out = append(out, dataplane.Condition{
			Code: dataplane.CodeInterfaceMissing, Severity: dataplane.High, Object: pattern, Text: "no interface matches the pattern " + pattern,
			Fix: "make an interface that matches it; counting on it begins by itself. If the host may lack one, give the entry optional: true",
		})
	}
	for name, err := range h.missing {
		c := dataplane.Condition{
			Code: dataplane.CodeInterfaceMissing, Severity: dataplane.High, Object: name, Text: err.Error(),
			Fix: "bring the interface back; counting on it goes on by itself",
		}
		if !errors.Is(err, xdp.ErrNotFound) {
			c.Code, c.Fix = dataplane.CodeInterfaceRefused, refusedFix(err)
		}
		out = append(out, c)
	}
	hasSCTP := sync.OnceValue(xdp.HasSCTP)
	for _, a := range h.held {
		if a.Mode == "generic" {
			out = append(out, h.genericMode(a.Interface))
		}
		if a.HarmsSCTP {
			out = append(out, genericBesideSCTP(a.Interface, hasSCTP()))
		}
		if a.Hook == xdp.HookIngress {
			out = append(out, h.upstreamConditions(a)...)
		}
		if others := h.upstream.before[hookName{a.Interface, a.Hook}]; len(others) > 0 && isTCX(a) {
			out = append(out, h.tcxBefore(a, others))
		}
	}
	out = append(out, h.stackConditions()...)
	out = append(out, h.tunnelConditions()...)
	if h.unpinned != "" {
		out = append(out, dataplane.Condition{
			Code: dataplane.CodePinsLost, Severity: dataplane.High, Object: h.config.PinDir,
			Text: "pins were removed, or their file system was unmounted, while the instance ran; without them counting ends with the process: " + h.unpinned,
			Fix:  "make the directory usable again" + remount(h.config.PinDir) + ": the instance pins again by itself",
		})
	}
	return out
}

// refusedFix returns the next step for a refusing interface. A probe's error knows a better one.
func refusedFix(err error) string {
	var lacks *probe.UnsupportedError
	if errors.As(err, &lacks) && lacks.Fix != "" {
		return lacks.Fix + "; after a change of the configuration: flowtally apply"
	}
	return "remove the cause; counting on the interface goes on by itself"
}

// remount returns the command to mount the bpffs again. Outside of /sys/fs/bpf only the operator knows what was
// mounted where: our command might hide files.
func remount(pinDir string) string {
	if !strings.HasPrefix(pinDir, "/sys/fs/bpf/") {
		return ", after an unmount by mounting its bpffs again"
	}
	return ", after an unmount with mount -t bpf -o mode=0700 bpf /sys/fs/bpf"
}

// matchesTags reports whether a flow on an interface asks for a VLAN tag or for its absence.
func (h *hooks) matchesTags(a xdp.Attachment) bool {
	return h.demand[""].taggedIngress+h.demand[a.Interface].taggedIngress > 0
}

// needsTags reports whether counts on an interface are wrong if XDP does not see the tags: flows ask for them, or a VLAN device
// above makes frames 4 bytes longer.
func (h *hooks) needsTags(a xdp.Attachment) bool {
	return h.matchesTags(a) || len(h.upstream.vlansAbove(a)) > 0
}

// upstreamConditions lists what changes received packets before our program sees them, if flows count differently for it.
func (h *hooks) upstreamConditions(a xdp.Attachment) (out []dataplane.Condition) {
	if isTCX(a) { // tags and merged segments are as on egress
		if holder, taken := h.upstream.beside.holder[a.Interface]; taken {
			out = append(out, besideCondition(a.Interface, holder))
		}
		return out
	}
	if isDispatched(a) {
		out = append(out, dispatcherCondition(a.Interface, h.upstream.before[hookName{a.Interface, a.Hook}]))
	}
	r := h.upstream.receive[a.Interface]
	if r.TakesTags && h.needsTags(a) {
		out = append(out, takesTags(a.Interface, r.receive, h.matchesTags(a), h.upstream.vlansAbove(a)))
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

func (h *hooks) genericMode(ifname string) dataplane.Condition {
	text := "counted by generic XDP, which is slower and on virtual links sees segments that were merged"
	if err := h.rejected[ifname]; err != nil {
		text += ": " + err.Error()
	}
	c := dataplane.Condition{
		Code: dataplane.CodeXDPGeneric, Severity: dataplane.Medium, Object: ifname, Text: text,
		Fix: "use a driver with native XDP, or turn off TSO and GSO of the sender (the condition stays): ethtool -K PEER tso off gso off",
	}
	if i, _ := h.find(ifname); i.Mode == dataplane.ModeGeneric {
		c.Fix = anotherMode(ifname)
	}
	return c
}

// anotherMode returns the fix for an interface in generic mode. It names a mode, because with auto an attached program stays where it
// is.
func anotherMode(ifname string) string {
	return "mode: tcx for " + ifname + ", or native where its driver has it, then: flowtally apply"
}

// genericBesideSCTP returns the condition of generic XDP on a device whose received buffers come from this host. It is low until the
// kernel has SCTP. But any user can have the module loaded, so we show it before.
func genericBesideSCTP(ifname string, hasSCTP bool) dataplane.Condition {
	c := dataplane.Condition{
		Code: dataplane.CodeXDPGenericSCTP, Severity: dataplane.Low, Object: ifname,
		Text: "generic XDP counts here, and behind it the kernel would crash on forwarding a stream of SCTP; the kernel has no SCTP yet, and loads it when any user opens such a socket",
		Fix:  anotherMode(ifname),
	}
	if hasSCTP {
		c.Severity = dataplane.High
		c.Text = "generic XDP counts here, and behind it the kernel crashes on forwarding a stream of SCTP; the kernel has SCTP"
	}
	return c
}

// restartUnpinned is the step to give up our place among the TCX programs of a hook. With pins it would survive the restart.
const restartUnpinned = "apply xdp.keep_pins: false, then restart flowtally"

// tcxBefore returns the condition of TCX programs in front of ours. If the configuration asks for the last place, the operator
// knows, but those programs still hide packets from us: the condition stays, with a low severity.
func (h *hooks) tcxBefore(a xdp.Attachment, others []xdp.Neighbour) dataplane.Condition {
	does := map[xdp.Hook]string{xdp.HookIngress: "receives", xdp.HookEgress: "sends"}[a.Hook]
	var names, links []string
	for _, o := range others {
		names = append(names, o.String())
		if o.Link != 0 {
			links = append(links, fmt.Sprintf("bpftool link detach id %d", o.Link))
		}
	}
	c := dataplane.Condition{
		Code: dataplane.CodeTCXBefore, Severity: dataplane.Medium, Object: a.Interface,
		Text: "these TCX programs run before flowtally on the packets that the interface " + does + ": " + strings.Join(names, ", ") +
			"; a packet for which one returns anything but TCX_NEXT is not counted, and no flow drops it",
		Fix: restartUnpinned + ": it goes before the programs that are there",
	}
	if len(links) > 0 {
		c.Fix += "; or detach the other program: " + strings.Join(links, "; ")
	}
	if h.config.TCX == "last" {
		c.Severity = dataplane.Low
		c.Fix = "nothing, if these programs are meant to decide first; else set xdp.tcx to first, and " + restartUnpinned
	}
	return c
}
