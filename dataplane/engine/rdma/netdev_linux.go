package rdma

import (
	"bytes"
	"encoding/binary"

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

// portNetdevOf parses one reply: attributes of a length, a type and a value, padded to 4 bytes. The reply of a port
// without an interface has no name. nl.ParseRouteAttr panics on a last attribute without its padding.
func portNetdevOf(answer []byte) (p portNetdev) {
	ne := binary.NativeEndian
	for len(answer) >= unix.SizeofRtAttr {
		n := int(ne.Uint16(answer))
		if n < unix.SizeofRtAttr || n > len(answer) {
			return p
		}
		switch typ, value := ne.Uint16(answer[2:]), answer[unix.SizeofRtAttr:n]; {
		case typ == nl.RDMA_NLDEV_ATTR_PORT_INDEX && len(value) >= 4:
			p.port = uint8(ne.Uint32(value))
		case typ == nl.RDMA_NLDEV_ATTR_NDEV_NAME:
			name, _, _ := bytes.Cut(value, []byte{0})
			p.netdev = string(name)
		}
		answer = answer[min((n+3)&^3, len(answer)):]
	}
	return p
}
