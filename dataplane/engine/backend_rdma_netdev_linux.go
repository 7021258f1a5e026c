package engine

import (
	"bytes"
	"syscall"

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
		attrs, err := nl.ParseRouteAttr(m)
		if err != nil {
			continue
		}
		if p := portNetdevOf(attrs); p.port != 0 && p.netdev != "" {
			out = append(out, p)
		}
	}
	return out
}

// portNetdevOf reads one answer; a port without an interface has no name in it.
func portNetdevOf(attrs []syscall.NetlinkRouteAttr) (p portNetdev) {
	for _, a := range attrs {
		switch {
		case a.Attr.Type == nl.RDMA_NLDEV_ATTR_PORT_INDEX && len(a.Value) >= 4:
			p.port = uint8(nl.NativeEndian().Uint32(a.Value))
		case a.Attr.Type == nl.RDMA_NLDEV_ATTR_NDEV_NAME:
			name, _, _ := bytes.Cut(a.Value, []byte{0})
			p.netdev = string(name)
		}
	}
	return p
}
