package xdp

import (
	"bytes"
	"fmt"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// receiveOf asks about an interface of the calling thread's network namespace. Parts that the kernel
// does not tell are as in the zero value.
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

// offloads lists the names of the features that are on, and of those that can be changed
// (ETHTOOL_MSG_FEATURES_GET, Linux 5.7). It takes no privilege.
func offloads(ifindex int) (active, changeable map[string]bool, err error) {
	f, err := netlink.GenlFamilyGet(unix.ETHTOOL_GENL_NAME)
	if err != nil {
		return nil, nil, err
	}
	req := nl.NewNetlinkRequest(int(f.ID), 0)
	req.AddData(&nl.Genlmsg{Command: unix.ETHTOOL_MSG_FEATURES_GET, Version: unix.ETHTOOL_GENL_VERSION})
	header := nl.NewRtAttr(unix.ETHTOOL_A_FEATURES_HEADER|unix.NLA_F_NESTED, nil)
	header.AddRtAttr(unix.ETHTOOL_A_HEADER_DEV_INDEX, nl.Uint32Attr(uint32(ifindex)))
	req.AddData(header)
	answers, err := req.Execute(unix.NETLINK_GENERIC, 0)
	if err != nil {
		return nil, nil, err
	}
	for _, a := range answers {
		attrs, err := attributes(a[nl.SizeofGenlmsg:])
		if err != nil {
			return nil, nil, err
		}
		if active, err = bitset(attrs[unix.ETHTOOL_A_FEATURES_ACTIVE]); err != nil {
			return nil, nil, err
		}
		if changeable, err = bitset(attrs[unix.ETHTOOL_A_FEATURES_HW]); err != nil {
			return nil, nil, err
		}
	}
	return active, changeable, nil
}

// bitset reads the names of a list of bits that are set.
func bitset(set []byte) (map[string]bool, error) {
	attrs, err := attributes(set)
	if err != nil {
		return nil, err
	}
	bits, err := nl.ParseRouteAttr(attrs[unix.ETHTOOL_A_BITSET_BITS])
	if err != nil {
		return nil, err
	}
	names := map[string]bool{}
	_, list := attrs[unix.ETHTOOL_A_BITSET_NOMASK] // without a mask: the bits listed are those that are set
	for _, b := range bits {
		bit, err := attributes(b.Value)
		if err != nil {
			return nil, err
		}
		_, set := bit[unix.ETHTOOL_A_BITSET_BIT_VALUE]
		if list || set {
			names[string(bytes.TrimRight(bit[unix.ETHTOOL_A_BITSET_BIT_NAME], "\x00"))] = true
		}
	}
	return names, nil
}

// nlaType is the type of an attribute without its flags (NLA_TYPE_MASK).
const nlaType = 0x3fff

// attributes parses the attributes of a message or of an attribute, by type.
func attributes(b []byte) (map[uint16][]byte, error) {
	list, err := nl.ParseRouteAttr(b)
	if err != nil {
		return nil, err
	}
	all := make(map[uint16][]byte, len(list))
	for _, a := range list {
		all[a.Attr.Type&nlaType] = a.Value
	}
	return all, nil
}
