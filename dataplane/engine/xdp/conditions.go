package engine

import (
	"errors"
	"fmt"
	"strings"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/xdp"
)

// Conditions lists interfaces that are not counted on, and those that are counted
// on in a way that costs more or sees less.
func (b *xdpBackend) Conditions() []dataplane.Condition {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil
	}
	var out []dataplane.Condition
	for name, err := range b.missing {
		c := dataplane.Condition{
			Code: dataplane.CodeInterfaceMissing, Severity: dataplane.High, Object: name, Text: err.Error(),
			Fix: "bring the interface back; counting on it goes on by itself",
		}
		if !errors.Is(err, xdp.ErrNotFound) {
			c.Code, c.Fix = dataplane.CodeInterfaceRefused, "remove the cause; counting on the interface goes on by itself"
		}
		out = append(out, c)
	}
	for _, a := range b.held {
		if a.Mode == "generic" {
			out = append(out, b.generic(a.Interface))
		}
		if a.Hook == xdp.HookIngress {
			out = append(out, b.beforeXDP(a)...)
		}
		if others := b.before[a.Interface]; a.Hook == xdp.HookEgress && len(others) > 0 {
			out = append(out, b.behind(a.Interface, others))
		}
	}
	if b.unpinned != "" {
		out = append(out, dataplane.Condition{
			Code: dataplane.CodePinsLost, Severity: dataplane.High, Object: b.cfg.XDP.PinDir,
			Text: "pins were removed, or their file system was unmounted, while the instance ran; without them counting ends with the process: " + b.unpinned,
			Fix:  "make the directory usable again, after an unmount with mount -t bpf -o mode=0700 bpf /sys/fs/bpf: the instance pins again by itself",
		})
	}
	return out
}

func (b *xdpBackend) generic(ifname string) dataplane.Condition {
	text := "counted by generic XDP, which is slower and on virtual links sees segments that were merged"
	if err := b.rejected[ifname]; err != nil {
		text += ": " + err.Error()
	}
	return dataplane.Condition{
		Code: dataplane.CodeXDPGeneric, Severity: dataplane.Medium, Object: ifname, Text: text,
		Fix: "use a driver with native XDP, or turn off TSO and GSO of the sender: ethtool -K PEER tso off gso off",
	}
}

// behind says which programs run before ours on what an interface sends. Where the
// configuration asks for the last place, that is as it was meant, and still hides packets.
func (b *xdpBackend) behind(ifname string, others []xdp.Neighbour) dataplane.Condition {
	var names, links []string
	for _, o := range others {
		names = append(names, o.String())
		if o.Link != 0 {
			links = append(links, fmt.Sprintf("bpftool link detach id %d", o.Link))
		}
	}
	c := dataplane.Condition{
		Code: dataplane.CodeTCXBefore, Severity: dataplane.Medium, Object: ifname,
		Text: "these TCX programs run before flowtally on what the interface sends: " + strings.Join(names, ", ") +
			"; a packet for which one returns anything but TCX_NEXT is not counted, and no flow drops it",
		Fix: "restart flowtally without kept pins: it goes before the programs that are there",
	}
	if len(links) > 0 {
		c.Fix += "; or detach the other program: " + strings.Join(links, "; ")
	}
	if b.cfg.XDP.TCX == "last" {
		c.Severity = dataplane.Low
		c.Fix = "nothing, if these programs are meant to decide first; else set xdp.tcx to first and restart flowtally without kept pins"
	}
	return c
}
