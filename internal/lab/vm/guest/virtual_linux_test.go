//go:build vm

package guest

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"

	"github.com/flowtally/flowtally/internal/lab"
)

// Addresses of the devices that are on top of those of a route.
const (
	addrTopS0, addrTopR0 = "10.3.0.1", "10.3.0.2"
	addrTopR1, addrTopD0 = "10.4.0.2", "10.4.0.1"
)

// stack puts a device on top of every end of a route, "top-" and the end's name, and routes between them. make returns
// the device of an end to the other one of its wire.
func (r *route) stack(make func(a netlink.LinkAttrs, e *lab.End, local, remote net.IP) netlink.Link) {
	r.Helper()
	for _, wire := range []struct {
		a, b         *lab.End
		addrA, addrB string
		topA, topB   string
	}{
		{r.s0, r.r0, addrS0, addrR0, addrTopS0, addrTopR0},
		{r.r1, r.d0, addrR1, addrD0, addrTopR1, addrTopD0},
	} {
		a := r.top(wire.a, make, wire.addrA, wire.addrB)
		b := r.top(wire.b, make, wire.addrB, wire.addrA)
		r.addressTop(a, b, wire.topA, wire.topB)
		r.addressTop(b, a, wire.topB, wire.topA)
	}
	r.routeTops()
}

// top adds one device, and returns it as an end.
func (r *route) top(e *lab.End, make func(netlink.LinkAttrs, *lab.End, net.IP, net.IP) netlink.Link, local, remote string) *lab.End {
	r.Helper()
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "top-" + e.Name
	l := make(attrs, e, net.ParseIP(local), net.ParseIP(remote))
	r.in(e.NS, func() error { return netlink.LinkAdd(l) })
	r.Cleanup(func() { r.in(e.NS, func() error { return netlink.LinkDel(l) }) })
	return r.up(e.NS, attrs.Name)
}

// up sets a device up, and returns it as an end.
func (r *route) up(ns *lab.Netns, name string) *lab.End {
	r.Helper()
	l := r.device(ns, name)
	r.in(ns, func() error { return netlink.LinkSetUp(l) })
	return &lab.End{NS: ns, Name: name, Index: l.Attrs().Index, MAC: l.Attrs().HardwareAddr}
}

// addressTop gives an end its address; one of Ethernet knows its neighbor.
func (r *route) addressTop(e, other *lab.End, own, far string) {
	r.Helper()
	r.must(e.AddAddr(netip.PrefixFrom(netip.MustParseAddr(own), 24)))
	if len(other.MAC) == 6 {
		r.must(e.AddNeighbor(netip.MustParseAddr(far), other.MAC))
	}
}

func (r *route) routeTops() {
	r.Helper()
	r.addRoute(r.sender, "10.4.0.0/24", addrTopR0)
	r.addRoute(r.receiver, "10.3.0.0/24", addrTopR1)
}

func (r *route) vlans() {
	r.Helper()
	r.stack(func(a netlink.LinkAttrs, e *lab.End, _, _ net.IP) netlink.Link {
		a.ParentIndex = e.Index
		return &netlink.Vlan{LinkAttrs: a, VlanId: 7}
	})
}

func (r *route) gre() {
	r.Helper()
	r.stack(func(a netlink.LinkAttrs, _ *lab.End, local, remote net.IP) netlink.Link {
		return &netlink.Gretun{LinkAttrs: a, Local: local, Remote: remote, Ttl: 64, PMtuDisc: 1}
	})
}

func (r *route) ipip() {
	r.Helper()
	r.stack(func(a netlink.LinkAttrs, _ *lab.End, local, remote net.IP) netlink.Link {
		return &netlink.Iptun{LinkAttrs: a, Local: local, Remote: remote, Ttl: 64, PMtuDisc: 1}
	})
}

func (r *route) geneve() {
	r.Helper()
	r.stack(func(a netlink.LinkAttrs, _ *lab.End, _, remote net.IP) netlink.Link {
		return &netlink.Geneve{LinkAttrs: a, ID: 7, Remote: remote, Dport: 6081, Ttl: 64}
	})
}

// bonds makes the router's ends slaves, each of a bond of its own.
func (r *route) bonds() {
	r.Helper()
	for _, wire := range []struct {
		slave, far *lab.End
		own, other string
	}{{r.r0, r.s0, addrTopR0, addrTopS0}, {r.r1, r.d0, addrTopR1, addrTopD0}} {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = "top-" + wire.slave.Name
		l := netlink.NewLinkBond(attrs)
		l.Mode, l.Miimon = netlink.BOND_MODE_ACTIVE_BACKUP, 50
		slave := r.device(r.router, wire.slave.Name)
		r.in(r.router, func() error {
			if err := netlink.LinkAdd(l); err != nil {
				return err
			}
			if err := netlink.LinkSetDown(slave); err != nil {
				return err
			}
			return netlink.LinkSetMaster(slave, l)
		})
		r.Cleanup(func() { r.in(r.router, func() error { return netlink.LinkDel(l) }) })
		bond := r.up(r.router, attrs.Name)
		r.in(r.router, func() error {
			awaitRunning(r.T, attrs.Name)
			return nil
		})
		r.addressTop(bond, wire.far, wire.own, wire.other)
		r.addressTop(wire.far, bond, wire.other, wire.own)
	}
	r.routeTops()
}

// An association is one direction of ESP between two hosts.
type association struct {
	spi      int
	from, to string // the hosts that encrypt and decrypt
	mode     netlink.Mode
	aead     bool // AES-GCM, else AES-CBC and SHA-256
}

func (a association) state() *netlink.XfrmState {
	s := &netlink.XfrmState{
		Src: net.ParseIP(a.from), Dst: net.ParseIP(a.to), Proto: netlink.XFRM_PROTO_ESP, Mode: a.mode, Spi: a.spi, ReplayWindow: 32,
	}
	if a.aead {
		s.Aead = &netlink.XfrmStateAlgo{Name: "rfc4106(gcm(aes))", Key: payload[:20], ICVLen: 128}
	} else {
		s.Crypt = &netlink.XfrmStateAlgo{Name: "cbc(aes)", Key: payload[:16]}
		s.Auth = &netlink.XfrmStateAlgo{Name: "hmac(sha256)", Key: payload[:32], TruncateLen: 128}
	}
	return s
}

// protect lets packets from s0 to that address pass an association: ns encrypts, or takes them in direction in or
// forward.
func (r *route) protect(ns *lab.Netns, a association, dir netlink.Dir, to string) {
	r.Helper()
	host := func(addr string) *net.IPNet {
		return &net.IPNet{IP: net.ParseIP(addr).To4(), Mask: net.CIDRMask(32, 32)}
	}
	p := &netlink.XfrmPolicy{
		Src: host(addrS0), Dst: host(to), Dir: dir,
		Tmpls: []netlink.XfrmPolicyTmpl{{Proto: netlink.XFRM_PROTO_ESP, Mode: a.mode}},
	}
	if a.mode == netlink.XFRM_MODE_TUNNEL {
		p.Tmpls[0].Src, p.Tmpls[0].Dst = net.ParseIP(a.from), net.ParseIP(a.to)
	}
	r.in(ns, func() error {
		if err := netlink.XfrmStateAdd(a.state()); err != nil {
			return fmt.Errorf("adding the state of SPI %#x: %w", a.spi, err)
		}
		if err := netlink.XfrmPolicyAdd(p); err != nil {
			return fmt.Errorf("adding the policy of SPI %#x: %w", a.spi, err)
		}
		return nil
	})
	r.Cleanup(func() {
		r.in(ns, func() error {
			if err := netlink.XfrmPolicyDel(p); err != nil {
				return err
			}
			return netlink.XfrmStateDel(a.state())
		})
	})
}

// espTunnels has a tunnel on each wire: the router decrypts what it forwards, and encrypts it again.
func (r *route) espTunnels() {
	r.Helper()
	first := association{spi: 0x101, from: addrS0, to: addrR0, mode: netlink.XFRM_MODE_TUNNEL}
	second := association{spi: 0x201, from: addrR1, to: addrD0, mode: netlink.XFRM_MODE_TUNNEL}
	r.protect(r.sender, first, netlink.XFRM_DIR_OUT, addrD0)
	r.protect(r.router, first, netlink.XFRM_DIR_FWD, addrD0)
	r.protect(r.router, second, netlink.XFRM_DIR_OUT, addrD0)
	r.protect(r.receiver, second, netlink.XFRM_DIR_IN, addrD0)
}

// espThrough is ESP from end to end, which the router forwards.
func (r *route) espThrough() {
	r.Helper()
	a := association{spi: 0x301, from: addrS0, to: addrD0, mode: netlink.XFRM_MODE_TRANSPORT, aead: true}
	r.protect(r.sender, a, netlink.XFRM_DIR_OUT, addrD0)
	r.protect(r.receiver, a, netlink.XFRM_DIR_IN, addrD0)
}

// espToRouter is ESP that the router decrypts for itself.
func (r *route) espToRouter() {
	r.Helper()
	a := association{spi: 0x401, from: addrS0, to: addrR0, mode: netlink.XFRM_MODE_TRANSPORT}
	r.protect(r.sender, a, netlink.XFRM_DIR_OUT, addrR0)
	r.protect(r.router, a, netlink.XFRM_DIR_IN, addrR0)
}
