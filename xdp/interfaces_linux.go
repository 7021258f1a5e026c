package xdp

import (
	"errors"
	"fmt"
	"net"

	"github.com/vishvananda/netlink"
)

// xdpProgram returns the id of the XDP program of an interface, or 0.
func xdpProgram(ifindex int) uint32 {
	l, err := netlink.LinkByIndex(ifindex)
	if err != nil || l.Attrs().Xdp == nil {
		return 0
	}
	return l.Attrs().Xdp.ProgId
}

// interfaceByName asks the kernel for one interface. net.InterfaceByName would list all of them, which takes milliseconds on a host
// with a thousand. The error is ErrNotFound if no interface has this name. The kernel also accepts alternative names. We refuse
// them, because events never contain them.
func interfaceByName(name string) (*net.Interface, device, error) {
	l, err := netlink.LinkByName(name)
	if missing := (netlink.LinkNotFoundError{}); errors.As(err, &missing) || err == nil && l.Attrs().Name != name {
		return nil, device{}, noInterface()
	}
	if err != nil {
		return nil, device{}, fmt.Errorf("asking for interface %s: %w", name, err)
	}

	a := l.Attrs()
	dev := device{name: name, link: a.EncapType, kind: l.Type()}
	if a.Xdp != nil && a.Xdp.Attached {
		dev.program = a.Xdp.ProgId
		dev.several = a.Xdp.ProgId == 0
	}
	return &net.Interface{Index: a.Index, Name: name}, dev, nil
}

// nameOf returns the name of an interface, or "" if no interface has this index.
func nameOf(ifindex int) string {
	l, err := netlink.LinkByIndex(ifindex)
	if err != nil {
		return ""
	}
	return l.Attrs().Name
}
