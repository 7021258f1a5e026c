package xdp

import (
	"bytes"
	"fmt"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/flowtally/flowtally/internal/genl"
)

// receiveOf asks the kernel about an interface in the network namespace of the calling thread. After an error the result has what
// was found out before it.
func receiveOf(ifname string) (receive, error) {
	l, err := netlink.LinkByName(ifname)
	if err != nil {
		return receive{}, fmt.Errorf("asking for interface %s: %w", ifname, err)
	}
	var r receive
	r.Veth = l.Type() == "veth"
	if t, ok := l.(*netlink.Tuntap); ok {
		r.Merges = t.Flags&netlink.TUNTAP_VNET_HDR != 0
	}
	active, changeable, err := offloads(l.Attrs().Index)
	if err != nil {
		return r, fmt.Errorf("asking for the offloads of interface %s: %w", ifname, err)
	}
	r.TakesTags = active[rxVLAN]
	r.Fixed = !changeable[rxVLAN]
	return r, nil
}

// rxVLAN is the kernel's name of ethtool's rx-vlan-offload.
const rxVLAN = "rx-vlan-hw-parse"

// offloads returns which features of a device are on, and which can be changed, by their names
// (ETHTOOL_MSG_FEATURES_GET, Linux 5.7). It needs no privilege.
func offloads(ifindex int) (active, changeable map[string]bool, err error) {
	ethtool, err := genl.Find(unix.ETHTOOL_GENL_NAME)
	if err != nil {
		return nil, nil, err
	}
	header := nl.NewRtAttr(unix.ETHTOOL_A_FEATURES_HEADER|unix.NLA_F_NESTED, nil)
	header.AddRtAttr(unix.ETHTOOL_A_HEADER_DEV_INDEX, nl.Uint32Attr(uint32(ifindex)))
	replies, err := ethtool.Execute(unix.ETHTOOL_MSG_FEATURES_GET, 0, header)
	if err != nil {
		return nil, nil, err
	}

	for _, reply := range replies {
		active = bitset(genl.Attribute(reply, unix.ETHTOOL_A_FEATURES_ACTIVE))
		changeable = bitset(genl.Attribute(reply, unix.ETHTOOL_A_FEATURES_HW))
	}
	return active, changeable, nil
}

// bitset returns the names of the bits that are set. A bitset without a mask lists only those; any other marks them by a value.
func bitset(set []byte) map[string]bool {
	names := map[string]bool{}
	noMask := genl.Attribute(set, unix.ETHTOOL_A_BITSET_NOMASK) != nil
	for _, bit := range genl.Attributes(genl.Attribute(set, unix.ETHTOOL_A_BITSET_BITS)) {
		if !noMask && genl.Attribute(bit, unix.ETHTOOL_A_BITSET_BIT_VALUE) == nil {
			continue
		}
		name := genl.Attribute(bit, unix.ETHTOOL_A_BITSET_BIT_NAME)
		names[string(bytes.TrimRight(name, "\x00"))] = true
	}
	return names
}
