package xdp

import (
	"errors"
	"fmt"
	"net"

	"github.com/vishvananda/netlink"
)

// xdpProgram is the id of the XDP program of an interface, or 0.
func xdpProgram(ifindex int) uint32 {
	l, err := netlink.LinkByIndex(ifindex)
	if err != nil || l.Attrs().Xdp == nil {
		return 0
	}
	return l.Attrs().Xdp.ProgId
}

// interfaceByName asks the kernel for one interface. net.InterfaceByName lists all of them, which takes
// milliseconds on a host with a thousand. The kernel also finds an interface by an alternative name, which is not
// one here: events have the name alone. Without an interface the error is ErrNotFound.
func interfaceByName(name string) (*net.Interface, device, error) {
	l, err := netlink.LinkByName(name)
	if missing := (netlink.LinkNotFoundError{}); errors.As(err, &missing) || err == nil && l.Attrs().Name != name {
		return nil, device{}, fmt.Errorf("%w: %w", ErrNotFound, &net.OpError{Op: "route", Net: "ip+net", Err: errors.New("no such network interface")})
	}
	if err != nil {
		return nil, device{}, fmt.Errorf("asking for interface %s: %w", name, err)
	}
	a := l.Attrs()
	dev := device{name: name, link: a.EncapType, kind: l.Type()}
	if a.Xdp != nil && a.Xdp.Attached {
		dev.program, dev.several = a.Xdp.ProgId, a.Xdp.ProgId == 0
	}
	return &net.Interface{Index: a.Index, Name: name}, dev, nil
}

// nameOf asks the kernel for the name of an interface. It is "" without an interface of the index.
func nameOf(ifindex int) string {
	l, err := netlink.LinkByIndex(ifindex)
	if err != nil {
		return ""
	}
	return l.Attrs().Name
}
