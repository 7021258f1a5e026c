package xdp

import (
	"slices"

	"github.com/flowtally/flowtally/probe"
)

// device is an interface as the kernel describes it.
type device struct {
	name string
	link string // type of the link layer, from ARPHRD_*: "ether", "none"
	kind string // for virtual devices: "veth", "tuntap"

	program uint32 // id of the XDP program; 0: none
	several bool   // XDP programs are attached in several modes at once
}

// local reports whether a device receives socket buffers from this host, and not frames from a wire. Such a buffer may hold many
// segments. A tap or tun device is not local: a process makes its buffers, and it has no way to describe segments of SCTP.
func (d device) local() bool {
	return d.link == "loopback" || d.kind != "" && d.kind != "device" && d.kind != "tuntap"
}

// Values of device.link by the first header of a sent frame: Ethernet, and IP.
var (
	linksEthernet = []string{"", "ether", "loopback"}
	linksIP       = []string{"none", "ppp", "ipip", "tunnel6", "sit", "unknown519"} // the last is ARPHRD_RAWIP
)

// kindsReceiveIP are the kinds of device on which XDP sees received frames from their IP header on. Other devices without
// Ethernet show a header they have already processed: sit the outer IPv4 header, xfrm the Ethernet header of the lower device.
var kindsReceiveIP = []string{"tuntap", "wireguard", "ipip"}

// layer3 reports whether frames at a hook begin with IP. If they begin with neither IP nor Ethernet, it returns an error.
func (d device) layer3(h Hook) (bool, error) {
	switch {
	case slices.Contains(linksEthernet, d.link):
		return false, nil
	case slices.Contains(linksIP, d.link) && (h == HookEgress || slices.Contains(kindsReceiveIP, d.kind)):
		return true, nil
	case slices.Contains(linksIP, d.link):
		return false, &probe.UnsupportedError{
			Feature: "counting received packets",
			Object:  d.name,
			Reason:  "frames of a device of kind " + d.kind + " (" + d.link + ") do not begin with IP or Ethernet where XDP sees them",
			Fix:     "count on the device that carries its traffic, or count egress only",
		}
	}
	return false, &probe.UnsupportedError{
		Feature: "counting",
		Object:  d.name,
		Reason:  "frames of a device of type " + d.link + " begin neither with Ethernet nor with IP",
		Fix:     "count on another interface",
	}
}
