package rdma

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/flowtally/flowtally/internal/genl"
)

// cmdPortGet is RDMA_NLDEV_CMD_PORT_GET. Package netlink has no function for it.
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

// portNetdevOf parses one reply. For a port without an interface the name is empty.
func portNetdevOf(answer []byte) (p portNetdev) {
	if port := genl.Attribute(answer, nl.RDMA_NLDEV_ATTR_PORT_INDEX); len(port) >= 4 {
		p.port = uint8(binary.NativeEndian.Uint32(port))
	}
	name, _, _ := bytes.Cut(genl.Attribute(answer, nl.RDMA_NLDEV_ATTR_NDEV_NAME), []byte{0})
	p.netdev = string(name)
	return p
}

// switchdevByNetlink asks devlink whether a function's e-switch is in switchdev mode. A function without an e-switch is not.
// We cannot use netlink.DevLinkGetDeviceByName, because it drops the errors of this command, even EPERM.
func switchdevByNetlink(bus, device string) (bool, error) {
	devlink, err := genl.Find(nl.GENL_DEVLINK_NAME)
	if errors.Is(err, unix.ENOENT) { // no driver with devlink is loaded
		return false, nil
	}
	if err != nil {
		return false, err
	}
	replies, err := devlink.Execute(nl.DEVLINK_CMD_ESWITCH_GET, unix.NLM_F_ACK,
		nl.NewRtAttr(nl.DEVLINK_ATTR_BUS_NAME, nl.ZeroTerminated(bus)),
		nl.NewRtAttr(nl.DEVLINK_ATTR_DEV_NAME, nl.ZeroTerminated(device)))
	if errors.Is(err, unix.ENODEV) || errors.Is(err, unix.EOPNOTSUPP) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(replies, isSwitchdev), nil
}

// isSwitchdev parses the attributes of one reply.
func isSwitchdev(reply []byte) bool {
	mode := genl.Attribute(reply, nl.DEVLINK_ATTR_ESWITCH_MODE)
	return len(mode) >= 2 && binary.NativeEndian.Uint16(mode) == nl.DEVLINK_ESWITCH_MODE_SWITCHDEV
}
