package xdp

import (
	"errors"
	"fmt"
	"net"

	"github.com/vishvananda/netlink"
)

// xdpProgram asks the kernel for the id of an interface's XDP program. It is 0 without one.
func xdpProgram(ifindex int) uint32 {
	l, err := netlink.LinkByIndex(ifindex)
	if err != nil || l.Attrs().Xdp == nil {
		return 0
	}
	return l.Attrs().Xdp.ProgId
}

// interfaceByName asks the kernel for one interface. net.InterfaceByName lists all of them, which takes milliseconds on a host with
// a thousand. If there is no interface of the name, the error is ErrNotFound. The kernel also finds an interface by an
// alternative name; interfaceByName does not, because events have the name alone.
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

// nameOf asks the kernel for the name of an interface. It is "" if there is none of the index.
func nameOf(ifindex int) string {
	l, err := netlink.LinkByIndex(ifindex)
	if err != nil {
		return ""
	}
	return l.Attrs().Name
}
