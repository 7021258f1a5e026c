//go:build vm && linux

package engine

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/lab"
)

// The kernel's tunnels are read as the sender meant them: each packet that enters a tunnel counts for the flow inside it, and
// none for a flow of another number. The kernel writes the headers here, and no code of ours.
func TestKernelTunnelsAreCountedInside(t *testing.T) {
	const n = 100
	const v4, v6 = "192.0.2.1", "2001:db8::1"
	for _, c := range []struct {
		kind        string
		setup       string // of the device "upper" at the far end
		gtp         bool   // made by netlink: iproute2 adds no users to it
		dst         string
		match, miss string
	}{
		{"ipip", "link add upper type ipip local 10.77.0.2 remote 10.77.0.1 dev FAR", false, v4, "ipv4 proto 4 ipip inner ipv4 dst 192.0.2.1 udp dport 1001", "ipip inner ipv6"},
		{"sit", "link add upper type sit local 10.77.0.2 remote 10.77.0.1 dev FAR", false, v6, "ipv4 ipip inner ipv6 dst 2001:db8::1 udp dport 1001", "ipip inner ipv4"},
		// By default ip6tnl puts its encapsulation limit into a destination header.
		{"ip6ip6", "link add upper type ip6tnl mode ip6ip6 local fd77::2 remote fd77::1 dev FAR", false, v6, "ipv6 nexthdr 60 ipip inner ipv6 udp dport 1001", "ipip inner ipv4"},
		{"4in6", "link add upper type ip6tnl mode ipip6 encaplimit none local fd77::2 remote fd77::1 dev FAR", false, v4, "ipv6 nexthdr 4 ipip inner ipv4 udp dport 1001", "ipip inner ipv6"},
		{"geneve", "link add upper address 02:00:00:00:00:0b type geneve id 7 remote 10.77.0.1", false, v4, "ipv4 geneve vni 7 inner eth src 02:00:00:00:00:0b udp dport 1001", "geneve vni 8"},
		{"geneve over IPv6", "link add upper address 02:00:00:00:00:0b type geneve id 7 remote fd77::1", false, v6, "ipv6 geneve vni 7 inner ipv6 udp dport 1001", "geneve inner ipv4"},
		{"geneve without Ethernet", "link add upper type geneve id 7 remote 10.77.0.1 innerprotoinherit", false, v4, "geneve vni 7 inner ipv4 udp dport 1001", "geneve inner eth"},
		{"vxlan", "link add upper address 02:00:00:00:00:0b type vxlan id 7 dstport 4789 local 10.77.0.2 remote 10.77.0.1 dev FAR", false, v4, "vxlan vni 7 inner udp dport 1001", "vxlan vni 8"},
		{"gre", "link add upper type gre key 7 local 10.77.0.2 remote 10.77.0.1 dev FAR", false, v4, "gre key 7 inner ipv4 udp dport 1001", "gre key 8"},
		{"gtp", "", true, v4, "ipv4 gtpu teid 0x64 inner ipv4 dst 192.0.2.1 udp dport 1001", "gtpu teid 0x65"},
	} {
		t.Run(c.kind, func(t *testing.T) {
			b := newBench(t, "native", flow.Flow{Name: "in", Match: match(t, c.match)},
				flow.Flow{Name: "miss", Match: match(t, c.miss), Priority: 1})
			near, far := b.wire.Near, b.wire.Far
			underlay(t, b.wire)
			upper := &lab.End{NS: far.NS, Name: "upper"}
			if err := errors.Join(far.AddAddr(netip.MustParsePrefix("fd77::2/64")), far.AddNeighbor(netip.MustParseAddr("fd77::1"), near.MAC)); err != nil {
				t.Fatal(err)
			}
			if c.gtp {
				addGTP(t, far)
			} else {
				ip(t, far, strings.ReplaceAll(c.setup, "FAR", far.Name))
			}
			ip(t, far, "link set upper up")
			if err := errors.Join(upper.AddAddr(netip.MustParsePrefix("192.0.2.2/24")), upper.AddAddr(netip.MustParsePrefix("2001:db8::2/64"))); err != nil {
				t.Fatal(err)
			}
			if strings.Contains(c.setup, "address") {
				ip(t, far, fmt.Sprintf("neigh replace %s lladdr 02:00:00:00:00:0a dev upper nud permanent", c.dst)) // nobody answers
			}

			e := b.start(t)
			sendUDP(t, far, net.JoinHostPort(c.dst, "1001"), n)
			lab.Eventually(t, "all packets", func() bool { return inKernel(t, e, "in") >= n })
			if in, miss := inKernel(t, e, "in"), inKernel(t, e, "miss"); in != n || miss != 0 {
				t.Errorf("sent %d: %q counts %d, %q counts %d", n, c.match, in, c.miss, miss)
			}
		})
	}
}

// sendUDP sends n datagrams from an end's namespace.
func sendUDP(t *testing.T, from *lab.End, dst string, n int) {
	t.Helper()
	err := from.NS.Do(func() error {
		out, err := net.Dial("udp", dst)
		if err != nil {
			return err
		}
		defer out.Close()
		for range n {
			if _, err := out.Write(make([]byte, 100)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// addGTP makes the device "upper", through which the user 192.0.2.1 is reached at the peer 10.77.0.1.
func addGTP(t *testing.T, end *lab.End) {
	t.Helper()
	err := end.NS.Do(func() error {
		var fds [2]int
		for i, port := range []int{3386, 2152} {
			sock, err := net.ListenUDP("udp4", &net.UDPAddr{Port: port})
			if err != nil {
				return err
			}
			t.Cleanup(func() { sock.Close() })
			f, err := sock.File()
			if err != nil {
				return err
			}
			t.Cleanup(func() { f.Close() })
			fds[i] = int(f.Fd())
		}
		attrs := netlink.NewLinkAttrs()
		attrs.Name = "upper"
		l := &netlink.GTP{LinkAttrs: attrs, FD0: fds[0], FD1: fds[1], Role: 0, PDPHashsize: 131072}
		if err := netlink.LinkAdd(l); err != nil {
			return err
		}
		up, err := netlink.LinkByName("upper")
		if err != nil {
			return err
		}
		return netlink.GTPPDPAdd(up, &netlink.PDP{
			Version: 1, PeerAddress: net.IPv4(10, 77, 0, 1).To4(), MSAddress: net.IPv4(192, 0, 2, 1).To4(), ITEI: 0x65, OTEI: 0x64,
		})
	})
	if err != nil {
		t.Fatal(err)
	}
}
