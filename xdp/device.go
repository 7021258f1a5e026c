package xdp

import (
	"slices"

	"github.com/flowtally/flowtally/probe"
)

// device is the kernel's description of an interface.
type device struct {
	name string
	link string // its type, of ARPHRD_*: "ether", "none"
	kind string // of a virtual one: "veth", "tuntap"

	program uint32 // the id of its XDP program; 0: none
	several bool   // it has several XDP programs, for the driver and in the device
}

// local reports whether a device receives buffers of this host, from another device or a socket, and not frames from a wire. Such
// a buffer may stand for many segments. A tap or tun device is not local: the process behind it makes the buffers, and cannot
// describe segments of SCTP.
func (d device) local() bool {
	return d.link == "loopback" || d.kind != "" && d.kind != "device" && d.kind != "tuntap"
}

// Types of devices whose sent frames begin with Ethernet, and with IP.
var (
	linksEthernet = []string{"", "ether", "loopback"}
	linksIP       = []string{"none", "ppp", "ipip", "tunnel6", "sit", "unknown519"} // the last is ARPHRD_RAWIP
)

// kindsReceiveIP are the kinds of device whose received frames begin with IP for a program of XDP. Others show it a header that
// they have taken off: sit the outer IPv4 header, xfrm the Ethernet header of the device below.
var kindsReceiveIP = []string{"tuntap", "wireguard", "ipip"}

// layer3 reports whether frames begin with IP at a hook. It returns an error if they begin with a header other than IP and
// Ethernet.
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
