package lab

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// PairOptions shapes a veth pair. The zero value is an MTU of 1500 and one
// queue in each direction.
type PairOptions struct {
	MTU    int
	Queues int // in each direction, on both ends; 0 means 1
}

// Pair is a veth pair between two namespaces, up on both ends.
type Pair struct{ A, B *End }

// End is one interface of a pair.
type End struct {
	NS    *Netns
	Name  string
	Index int
	MAC   net.HardwareAddr
}

// NewPair makes a veth pair: nameA in a, nameB in b. Their hardware addresses
// are random. The pair ends with either of its ends, or with its namespaces.
func NewPair(a, b *Netns, nameA, nameB string, o PairOptions) (*Pair, error) {
	if o.MTU == 0 {
		o.MTU = 1500
	}
	if o.Queues == 0 {
		o.Queues = 1
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU = nameA, o.MTU
	attrs.NumTxQueues, attrs.NumRxQueues = o.Queues, o.Queues
	veth := netlink.NewVeth(attrs)
	veth.PeerName, veth.PeerMTU = nameB, uint32(o.MTU)
	veth.PeerNumTxQueues, veth.PeerNumRxQueues = uint32(o.Queues), uint32(o.Queues)
	veth.PeerNamespace = netlink.NsFd(int(b.fd))
	if err := a.nl.LinkAdd(veth); err != nil {
		return nil, fmt.Errorf("adding veth pair %s, %s: %w", nameA, nameB, err)
	}
	p := &Pair{A: &End{NS: a, Name: nameA}, B: &End{NS: b, Name: nameB}}
	for _, e := range []*End{p.A, p.B} {
		if err := e.up(); err != nil {
			p.Close()
			return nil, err
		}
	}
	for _, e := range []*End{p.A, p.B} {
		if err := e.awaitUp(); err != nil {
			p.Close()
			return nil, err
		}
	}
	return p, nil
}

// Close removes the pair. Idempotent.
func (p *Pair) Close() error {
	l, err := p.A.link()
	if err == nil {
		err = p.A.NS.nl.LinkDel(l)
	}
	var gone netlink.LinkNotFoundError
	if errors.As(err, &gone) {
		return nil
	}
	return err
}

func (e *End) link() (netlink.Link, error) {
	l, err := e.NS.nl.LinkByName(e.Name)
	if err != nil {
		return nil, fmt.Errorf("looking up %s: %w", e.Name, err)
	}
	return l, nil
}

// Rename gives the end another name.
func (e *End) Rename(name string) error {
	l, err := e.link()
	if err != nil {
		return err
	}
	if err := e.NS.nl.LinkSetName(l, name); err != nil {
		return fmt.Errorf("renaming %s: %w", e.Name, err)
	}
	e.Name = name
	return nil
}

func (e *End) up() error {
	l, err := e.link()
	if err != nil {
		return err
	}
	if err := e.NS.nl.LinkSetUp(l); err != nil {
		return fmt.Errorf("setting %s up: %w", e.Name, err)
	}
	e.Index, e.MAC = l.Attrs().Index, l.Attrs().HardwareAddr
	return nil
}

// awaitUp waits for the kernel to declare the link operational, which it does a
// moment after both ends are up; IPv6 does not use it before.
func (e *End) awaitUp() error {
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
		l, err := e.link()
		if err != nil {
			return err
		}
		if l.Attrs().OperState == netlink.OperUp {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("waiting for %s: operational state %s after 30 s", e.Name, l.Attrs().OperState)
		}
	}
}

// AddAddr gives the end an address with its prefix. The first IPv6 address
// turns IPv6 on for this interface, without duplicate address detection.
func (e *End) AddAddr(p netip.Prefix) error {
	if p.Addr().Is6() {
		path := filepath.Join("/proc/sys/net/ipv6/conf", e.Name, "disable_ipv6")
		if err := e.NS.Do(func() error { return os.WriteFile(path, []byte("0"), 0) }); err != nil {
			return fmt.Errorf("turning IPv6 on for %s: %w", e.Name, err)
		}
	}
	l, err := e.link()
	if err != nil {
		return err
	}
	ip := &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
	addr := &netlink.Addr{IPNet: ip}
	if p.Addr().Is6() {
		addr.Flags = unix.IFA_F_NODAD // not tentative, not even for the moment that a check would take
	}
	if err := e.NS.nl.AddrAdd(l, addr); err != nil {
		return fmt.Errorf("adding %s to %s: %w", p, e.Name, err)
	}
	if p.Addr().Is6() {
		return e.awaitLocal(p.Addr())
	}
	return nil
}

// awaitLocal waits until the kernel delivers packets to an IPv6 address of this end. A work
// queue of the kernel adds the route for that after the address can already be bound.
func (e *End) awaitLocal(addr netip.Addr) error {
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
		routes, err := e.NS.nl.RouteGet(addr.AsSlice())
		if len(routes) == 1 && routes[0].Type == unix.RTN_LOCAL {
			return nil
		}
		if err == nil {
			err = fmt.Errorf("its routes are %v", routes)
		}
		if time.Now().After(end) {
			return fmt.Errorf("waiting for the local route of %s on %s: %w", addr, e.Name, err)
		}
	}
}

// AddNeighbor tells the end the hardware address of addr for good, so that no
// ARP or neighbor solicitation is sent for it.
func (e *End) AddNeighbor(addr netip.Addr, mac net.HardwareAddr) error {
	family := netlink.FAMILY_V4
	if addr.Is6() {
		family = netlink.FAMILY_V6
	}
	err := e.NS.nl.NeighSet(&netlink.Neigh{
		LinkIndex: e.Index, Family: family, State: netlink.NUD_PERMANENT,
		IP: addr.AsSlice(), HardwareAddr: mac,
	})
	if err != nil {
		return fmt.Errorf("adding neighbor %s to %s: %w", addr, e.Name, err)
	}
	return nil
}

// LinkStats are the interface's own totals, which flowtally does not use.
type LinkStats struct{ RxPackets, RxBytes, RxDropped, TxPackets, TxBytes, TxDropped uint64 }

// Stats reads the interface's totals.
func (e *End) Stats() (LinkStats, error) {
	l, err := e.link()
	if err != nil {
		return LinkStats{}, err
	}
	s := l.Attrs().Statistics
	if s == nil {
		return LinkStats{}, fmt.Errorf("reading statistics of %s: the kernel sent none", e.Name)
	}
	return LinkStats{
		RxPackets: s.RxPackets, RxBytes: s.RxBytes, RxDropped: s.RxDropped,
		TxPackets: s.TxPackets, TxBytes: s.TxBytes, TxDropped: s.TxDropped,
	}, nil
}
