package rdma

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// cmdPortGet is RDMA_NLDEV_CMD_PORT_GET, which package netlink has no call for.
const cmdPortGet = 5

// netdevsByNetlink asks the kernel for the interfaces of a device's ports.
func netdevsByNetlink(device string) []portNetdev {
	link, err := netlink.RdmaLinkByName(device)
	if err != nil {
		return nil
	}
	req := nl.NewNetlinkRequest(nl.RDMA_NL_NLDEV<<nl.RDMA_NL_GET_CLIENT_SHIFT|cmdPortGet, unix.NLM_F_DUMP)
	req.AddData(nl.NewRtAttr(nl.RDMA_NLDEV_ATTR_DEV_INDEX, nl.Uint32Attr(link.Attrs.Index)))
	msgs, err := req.Execute(unix.NETLINK_RDMA, 0)
	if err != nil {
		return nil
	}
	var out []portNetdev
	for _, m := range msgs {
		if p := portNetdevOf(m); p.port != 0 && p.netdev != "" {
			out = append(out, p)
		}
	}
	return out
}

// portNetdevOf parses one reply. The reply of a port without an interface has no name.
func portNetdevOf(answer []byte) (p portNetdev) {
	if port := attribute(answer, nl.RDMA_NLDEV_ATTR_PORT_INDEX); len(port) >= 4 {
		p.port = uint8(binary.NativeEndian.Uint32(port))
	}
	name, _, _ := bytes.Cut(attribute(answer, nl.RDMA_NLDEV_ATTR_NDEV_NAME), []byte{0})
	p.netdev = string(name)
	return p
}

// attribute returns the value of an attribute, or nil. Attributes have a length, a type and a value, padded to 4 bytes.
// nl.ParseRouteAttr panics on a last attribute without its padding.
func attribute(list []byte, typ uint16) []byte {
	ne := binary.NativeEndian
	for len(list) >= unix.SizeofRtAttr {
		n := int(ne.Uint16(list))
		if n < unix.SizeofRtAttr || n > len(list) {
			return nil
		}
		if ne.Uint16(list[2:]) == typ {
			return list[unix.SizeofRtAttr:n]
		}
		list = list[min((n+3)&^3, len(list)):]
	}
	return nil
}

// switchdevByNetlink asks devlink for the mode of a function's e-switch. A function without an e-switch is in no mode.
// netlink.DevLinkGetDeviceByName drops the errors of this command, EPERM among them.
func switchdevByNetlink(bus, device string) (bool, error) {
	family, err := netlink.GenlFamilyGet(nl.GENL_DEVLINK_NAME)
	if errors.Is(err, unix.ENOENT) { // no driver with devlink is loaded
		return false, nil
	}
	if err != nil {
		return false, err
	}
	req := nl.NewNetlinkRequest(int(family.ID), unix.NLM_F_ACK)
	req.AddData(&nl.Genlmsg{Command: nl.DEVLINK_CMD_ESWITCH_GET, Version: nl.GENL_DEVLINK_VERSION})
	req.AddData(nl.NewRtAttr(nl.DEVLINK_ATTR_BUS_NAME, nl.ZeroTerminated(bus)))
	req.AddData(nl.NewRtAttr(nl.DEVLINK_ATTR_DEV_NAME, nl.ZeroTerminated(device)))
	msgs, err := req.Execute(unix.NETLINK_GENERIC, 0)
	if errors.Is(err, unix.ENODEV) || errors.Is(err, unix.EOPNOTSUPP) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(msgs, isSwitchdev), nil
}

// isSwitchdev parses one reply: the header of generic netlink, and attributes.
func isSwitchdev(answer []byte) bool {
	mode := attribute(answer[min(nl.SizeofGenlmsg, len(answer)):], nl.DEVLINK_ATTR_ESWITCH_MODE)
	return len(mode) >= 2 && binary.NativeEndian.Uint16(mode) == nl.DEVLINK_ESWITCH_MODE_SWITCHDEV
}
