package xdp

import (
	"slices"

	"github.com/flowtally/flowtally/probe"
)

// local says whether a device receives buffers of this host, of another device or a socket, in place of frames of a wire.
// Such a buffer may stand for many segments. A tap or tun device does not count as local: the program behind it makes
// the buffers, and has no way to describe segments of SCTP.
func (d device) local() bool {
	return d.link == "loopback" || d.kind != "" && d.kind != "device" && d.kind != "tuntap"
}

// Types of devices whose sent frames begin with Ethernet, and with IP.
var (
	linksEthernet = []string{"", "ether", "loopback"}
	linksIP       = []string{"none", "ppp", "ipip", "tunnel6", "sit", "unknown519"} // the last is ARPHRD_RAWIP
)

// kindsReceiveIP are the devices whose received frames begin with IP where a program of XDP sees them. Others show
// it a header that they have taken off: sit the outer IPv4 header, xfrm the Ethernet header of the device below.
var kindsReceiveIP = []string{"tuntap", "wireguard", "ipip"}

// layer3 says whether frames begin with IP at a hook. The error says that frames begin with
// another header.
func (d device) layer3(h Hook) (bool, error) {
	switch {
	case slices.Contains(linksEthernet, d.link):
		return false, nil
	case slices.Contains(linksIP, d.link) && (h == HookEgress || slices.Contains(kindsReceiveIP, d.kind)):
		return true, nil
	case slices.Contains(linksIP, d.link):
		return false, &probe.UnsupportedError{Feature: "counting received packets", Object: d.name,
			Reason: "frames of a device of kind " + d.kind + " (" + d.link + ") do not begin with IP or Ethernet where XDP sees them",
			Fix:    "count on the device that carries its traffic, or count egress only"}
	}
	return false, &probe.UnsupportedError{Feature: "counting", Object: d.name,
		Reason: "frames of a device of type " + d.link + " begin neither with Ethernet nor with IP", Fix: "count on another interface"}
}

// device is the kernel's description of an interface.
type device struct {
	name string
	link string // its type, of ARPHRD_*: "ether", "none"
	kind string // of a virtual one: "veth", "tuntap"
	// program is the id of its XDP program, or 0. A device that runs programs itself may have several.
	program uint32
	several bool
}
