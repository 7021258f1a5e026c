package cli

import (
	"encoding/binary"
	"errors"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// The netdev family of generic netlink, in kernels from 6.3 on:
// Documentation/netlink/specs/netdev.yaml.
const (
	netdevFamily      = "netdev"
	netdevCmdDevGet   = 1
	netdevAttrIfindex = 1
	netdevAttrXDP     = 3      // u64, bits
	netdevXDPBasic    = 1 << 0 // the driver runs programs: drop, pass, abort, tx
)

// nativeXDP asks the kernel whether the driver of an interface runs XDP
// programs. Nothing is attached. An error: the question could not be asked.
func nativeXDP(ifindex int) (bool, error) {
	family, err := netlink.GenlFamilyGet(netdevFamily)
	if err != nil {
		return false, err
	}
	req := nl.NewNetlinkRequest(int(family.ID), 0)
	req.AddData(genlHeader{netdevCmdDevGet, byte(family.Version)})
	req.AddData(nl.NewRtAttr(netdevAttrIfindex, nl.Uint32Attr(uint32(ifindex))))
	msgs, err := req.Execute(unix.NETLINK_GENERIC, 0)
	if err != nil {
		return false, err
	}
	for _, msg := range msgs {
		if len(msg) < nl.SizeofGenlmsg {
			continue
		}
		attrs, err := nl.ParseRouteAttr(msg[nl.SizeofGenlmsg:])
		if err != nil {
			return false, err
		}
		for _, a := range attrs {
			if a.Attr.Type == netdevAttrXDP && len(a.Value) >= 8 {
				return binary.NativeEndian.Uint64(a.Value)&netdevXDPBasic != 0, nil
			}
		}
	}
	return false, errors.New("the kernel's answer names no XDP features")
}

// genlHeader is struct genlmsghdr: command, version and a reserved word, which
// newer families want to be zero. (nl.Genlmsg takes it from the memory behind
// itself.)
type genlHeader [nl.SizeofGenlmsg]byte

func (h genlHeader) Len() int          { return len(h) }
func (h genlHeader) Serialize() []byte { return h[:] }
