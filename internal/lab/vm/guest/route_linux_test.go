//go:build vm

package guest

import (
	"net"
	"net/netip"
	"os"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/flowtally/flowtally/internal/lab"
)

// A route is three hosts in a row. The router forwards between the other two, and is the host that counts:
//
//	sender s0 ── r0 router r1 ── d0 receiver
//
// Their neighbors are known, so that no packet is on the wires that a test did not send.
type route struct {
	*testing.T
	sender, router, receiver *lab.Netns
	s0, r0, r1, d0           *lab.End
}

// The addresses of a route's ends.
const (
	addrS0, addrR0 = "10.1.0.1", "10.1.0.2"
	addrR1, addrD0 = "10.2.0.2", "10.2.0.1"

	addr6S0, addr6R0 = "fd01::1", "fd01::2"
	addr6R1, addr6D0 = "fd02::2", "fd02::1"
)

func newRoute(t *testing.T) *route {
	t.Helper()
	r := &route{T: t, sender: newNetns(t), router: newNetns(t), receiver: newNetns(t)}
	r.s0, r.r0 = r.pair(r.sender, r.router, "s0", "r0")
	r.r1, r.d0 = r.pair(r.router, r.receiver, "r1", "d0")
	r.write(r.router, "net/ipv4/ip_forward", "1")
	r.write(r.router, "net/ipv6/conf/all/forwarding", "1")

	r.connect(r.s0, r.r0, addrS0+"/24", addrR0+"/24")
	r.connect(r.s0, r.r0, addr6S0+"/64", addr6R0+"/64")
	r.connect(r.r1, r.d0, addrR1+"/24", addrD0+"/24")
	r.connect(r.r1, r.d0, addr6R1+"/64", addr6D0+"/64")

	r.addRoute(r.sender, "10.2.0.0/24", addrR0)
	r.addRoute(r.receiver, "10.1.0.0/24", addrR1)
	r.addRoute(r.sender, "fd02::/64", addr6R0)
	r.addRoute(r.receiver, "fd01::/64", addr6R1)
	return r
}

func newNetns(t *testing.T) *lab.Netns {
	t.Helper()
	ns, err := lab.NewNetns("")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ns.Close() })
	return ns
}

func (r *route) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

// in runs fn in a namespace.
func (r *route) in(ns *lab.Netns, fn func() error) {
	r.Helper()
	r.must(ns.Do(fn))
}

func (r *route) write(ns *lab.Netns, sysctl, value string) {
	r.Helper()
	r.in(ns, func() error { return os.WriteFile("/proc/sys/"+sysctl, []byte(value), 0) })
}

// pair is a veth pair that does not merge what it receives, and segments what it sends just before the wire.
func (r *route) pair(a, b *lab.Netns, nameA, nameB string) (*lab.End, *lab.End) {
	r.Helper()
	p, err := lab.NewPair(a, b, nameA, nameB, lab.PairOptions{})
	r.must(err)
	r.Cleanup(func() { p.Close() })
	return p.A, p.B
}

// connect gives both ends of a pair an address.
func (r *route) connect(a, b *lab.End, addrA, addrB string) {
	r.Helper()
	for _, side := range []struct {
		end, other *lab.End
		own, far   string
	}{{a, b, addrA, addrB}, {b, a, addrB, addrA}} {
		r.must(side.end.AddAddr(netip.MustParsePrefix(side.own)))
		r.must(side.end.AddNeighbor(netip.MustParsePrefix(side.far).Addr(), side.other.MAC))
	}
}

func (r *route) addRoute(ns *lab.Netns, to, via string) {
	r.Helper()
	_, dst, err := net.ParseCIDR(to)
	r.must(err)
	r.in(ns, func() error { return netlink.RouteAdd(&netlink.Route{Dst: dst, Gw: net.ParseIP(via)}) })
}

// device is a link of a namespace.
func (r *route) device(ns *lab.Netns, name string) (l netlink.Link) {
	r.Helper()
	r.in(ns, func() (err error) {
		l, err = netlink.LinkByName(name)
		return err
	})
	return l
}
