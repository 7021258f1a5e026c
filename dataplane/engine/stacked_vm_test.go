//go:build vm && linux

package engine

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/engine/xdp"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/internal/lab/frame"
)

// ip runs commands of ip(8), one a line, in the namespace of an end.
func ip(t *testing.T, end *lab.End, lines string) {
	t.Helper()
	for line := range strings.SplitSeq(strings.TrimSpace(lines), "\n") {
		if err := end.NS.Do(func() error {
			args := strings.Fields(line)
			for i, arg := range args {
				args[i] = strings.ReplaceAll(arg, "''", "") // an empty key
			}
			out, err := exec.Command("ip", args...).CombinedOutput()
			if err != nil {
				return fmt.Errorf("ip %s: %w: %s", strings.TrimSpace(line), err, out)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
}

// underlay gives the ends of a wire addresses, 10.77.0.1 and 10.77.0.2, that need no ARP.
func underlay(t *testing.T, w *lab.Wire) {
	t.Helper()
	for _, own := range []struct {
		end, other *lab.End
		n, peer    int
	}{{w.Near, w.Far, 1, 2}, {w.Far, w.Near, 2, 1}} {
		ip(t, own.end, fmt.Sprintf("addr add 10.77.0.%d/24 dev %s\nneigh replace 10.77.0.%d lladdr %s dev %s nud permanent\nlink set lo up",
			own.n, own.end.Name, own.peer, own.other.MAC, own.end.Name))
	}
}

// passUDP sends n datagrams from one end's namespace to an address of the other's, and waits until all have arrived.
func passUDP(t *testing.T, from, to *lab.End, dst string, n int) {
	t.Helper()
	addr := net.UDPAddrFromAddrPort(netip.MustParseAddrPort(dst))
	var in, out *net.UDPConn
	err := to.NS.Do(func() (err error) { in, err = net.ListenUDP("udp4", addr); return err })
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	if err := from.NS.Do(func() (err error) { out, err = net.DialUDP("udp4", nil, addr); return err }); err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	buf := make([]byte, 256)
	for i := range n {
		if _, err := out.Write(make([]byte, 100)); err != nil {
			t.Fatal(err)
		}
		if err := in.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
			t.Fatal(err)
		}
		if _, err := in.Read(buf); err != nil {
			t.Fatalf("datagram %d of %d to %s: %v", i+1, n, dst, err)
		}
	}
}

// inKernel returns the packets that the kernel has counted for a flow.
func inKernel(t *testing.T, e *Engine, name string) uint64 {
	t.Helper()
	e.ctl.Lock()
	defer e.ctl.Unlock()
	got, err := backend.ReadOne(e.backends[0], e.flows[name].id)
	if err != nil {
		t.Fatal(err)
	}
	return got.Packets
}

// A packet through each kind of stack counts on both interfaces, received and sent, and the condition names both. After the
// fix of the condition it counts once. Without a condition it counts once from the start.
func TestStackedInterfacesCountTwice(t *testing.T) {
	const upper, n = "upper", 100
	for _, c := range []struct {
		kind      string
		near, far string // LOWER, UPPER and FAR are the names
		tag       bool   // frames for the upper interface have the VLAN tag 5
		tunnel    bool
		once      bool // the upper interface sees no packet that the lower one receives
	}{
		{kind: "bridge", near: "link add UPPER type bridge mcast_snooping 0\nlink set LOWER master UPPER"},
		{kind: "bond", near: "link add UPPER type bond mode active-backup\nlink set LOWER down\nlink set LOWER master UPPER\nlink set LOWER up"},
		{kind: "vlan", near: "link add link LOWER name UPPER type vlan id 5", tag: true},
		{kind: "bridge over vlan over bond", tag: true, near: "link add bond9 type bond mode active-backup\nlink set LOWER down\nlink set LOWER master bond9\nlink set LOWER up\n" +
			"link set bond9 up\nlink add link bond9 name vlan9 type vlan id 5\nlink set vlan9 up\nlink add UPPER type bridge mcast_snooping 0\nlink set vlan9 master UPPER"},
		{kind: "macvlan", near: "link add link LOWER name UPPER type macvlan mode private"},
		{kind: "ipvlan", near: "link add link LOWER name UPPER type ipvlan mode l2"},
		{kind: "vxlan", tunnel: true, near: "link add UPPER address 02:00:00:00:00:0a type vxlan id 7 dstport 4789 local 10.77.0.1 remote 10.77.0.2 dev LOWER",
			far: "link add UPPER address 02:00:00:00:00:0b type vxlan id 7 dstport 4789 local 10.77.0.2 remote 10.77.0.1 dev FAR"},
		{kind: "gretap", tunnel: true, near: "link add UPPER address 02:00:00:00:00:0a type gretap local 10.77.0.1 remote 10.77.0.2 dev LOWER",
			far: "link add UPPER address 02:00:00:00:00:0b type gretap local 10.77.0.2 remote 10.77.0.1 dev FAR"},
		{kind: "ipip", tunnel: true, near: "link add UPPER type ipip local 10.77.0.1 remote 10.77.0.2 dev LOWER", far: "link add UPPER type ipip local 10.77.0.2 remote 10.77.0.1 dev FAR"},
		{kind: "vrf", near: "link add UPPER type vrf table 10\nlink set LOWER master UPPER", once: true},
	} {
		for _, mode := range []string{"native", "tcx"} {
			t.Run(c.kind+" over "+mode, func(t *testing.T) {
				b := newBench(t, mode, flow.Flow{Name: "in", Match: match(t, "ipv4")}, flow.Flow{Name: "out", Match: match(t, "ipv4"), Direction: flow.Egress})
				near, far := b.wire.Near, b.wire.Far
				names := strings.NewReplacer("LOWER", near.Name, "UPPER", upper, "FAR", far.Name)
				if c.tunnel {
					underlay(t, b.wire)
					ip(t, far, names.Replace(c.far)+"\naddr add 192.0.2.2/24 dev upper\nlink set upper up")
				}
				ip(t, near, names.Replace(c.near)+"\naddr add 192.0.2.1/24 dev upper\nlink set upper up")
				if c.kind == "vxlan" || c.kind == "gretap" {
					ip(t, near, "neigh replace 192.0.2.2 lladdr 02:00:00:00:00:0b dev upper nud permanent")
					ip(t, far, "neigh replace 192.0.2.1 lladdr 02:00:00:00:00:0a dev upper nud permanent")
				}
				b.cfg.Interfaces = append(b.cfg.Interfaces, dataplane.Interface{Name: upper})
				e := b.start(t)

				var mac net.HardwareAddr
				if err := near.NS.Do(func() error {
					ifi, err := net.InterfaceByName(upper)
					if err == nil {
						mac = ifi.HardwareAddr
					}
					return err
				}); err != nil {
					t.Fatal(err)
				}
				pass := func() {
					t.Helper()
					if c.tunnel {
						passUDP(t, far, near, "192.0.2.1:1001", n)
						passUDP(t, near, far, "192.0.2.2:1001", n)
						return
					}
					eth := frame.Eth{Src: [6]byte{2, 0, 0, 0, 0, 2}}
					copy(eth.Dst[:], mac)
					packet := []frame.Layer{frame.IPv4{Src: frame.Addr("198.51.100.1"), Dst: frame.Addr("192.0.2.1")}, frame.UDP{Src: 9, Dst: 1001}}
					received := append([]frame.Layer{eth}, packet...)
					if c.tag {
						received = append([]frame.Layer{eth, frame.VLAN{ID: 5}}, packet...)
					}
					b.send(t, n, lab.Stream{Frames: [][]byte{frame.Sized(100, received...)}})
					if c.once {
						return
					}
					eth.Src, eth.Dst = eth.Dst, [6]byte{2, 0, 0, 0, 0, 2}
					sent := frame.Sized(100, append([]frame.Layer{eth}, packet...)...)
					if err := near.NS.Do(func() error { return lab.SendOn(upper, n, sent) }); err != nil {
						t.Fatal(err)
					}
				}
				check := func(step string, want uint64) {
					t.Helper()
					in, out := inKernel(t, e, "in"), inKernel(t, e, "out")
					t.Logf("%s: %d received are counted as %d, %d sent as %d", step, n, in, n, out)
					if in != want || out != want {
						t.Errorf("%s: counted %d and %d, want %d", step, in, out, want)
					}
				}
				if c.once {
					pass()
					if in := inKernel(t, e, "in"); in != n {
						t.Errorf("%d received are counted as %d", n, in)
					}
					awaitLook(t, e)
					awaitCondition(t, e, "interfaces-stacked", upper, false)
					return
				}
				got := awaitCondition(t, e, "interfaces-stacked", upper, true)
				if want := "receives or sends pass " + near.Name + " as well"; !strings.Contains(got.Text, want) {
					t.Errorf("condition %+v, want %q", got, want)
				}
				pass()
				check("stacked", 2*n)

				keep := b.cfg.Interfaces[:1]
				if want := fmt.Sprintf("interfaces: [{name: %s, mode: %s}] ", near.Name, mode); !strings.HasPrefix(got.Fix, want) {
					t.Fatalf("the fix is %q, want %q", got.Fix, want)
				}
				file := b.cfg
				file.Flows, file.Interfaces = nil, keep
				if _, err := e.SetFlows(t.Context(), nil, dataplane.SetOptions{KeepOthers: true, Config: &file}); err != nil {
					t.Fatal(err)
				}
				awaitCondition(t, e, "interfaces-stacked", upper, false)
				pass()
				check("after the fix", 3*n)
			})
		}
	}
}

// A packet of an IPsec tunnel passes TCX ingress and generic XDP twice: encrypted, and again decrypted. It passes TCX egress
// and XDP in the driver once, encrypted. If GRO decrypts
// (esp4_offload), TCX sees the decrypted packet alone. An interface of the kind xfrm takes the decrypted packets, and
// flowtally does not count on it. In transport mode no packet passes a hook twice.
func TestIPsecCountsTwice(t *testing.T) {
	const n = 50
	for _, c := range []struct {
		ipsec, mode string
		gro         bool
		device      bool // decrypted packets arrive at an interface of their own, ipsec0
		again       bool // decrypted packets pass the hook again
		want        map[string]uint64
	}{
		{ipsec: "tunnel", mode: "tcx", again: true, want: map[string]uint64{"esp": n, "all": n}},
		{ipsec: "tunnel", mode: "generic", again: true, want: map[string]uint64{"esp": n, "all": n}},
		{ipsec: "tunnel", mode: "native", want: map[string]uint64{"esp": n}},
		{ipsec: "tunnel", mode: "tcx", gro: true, again: true, want: map[string]uint64{"all": n}},
		{ipsec: "tunnel", mode: "native", gro: true, want: map[string]uint64{"esp": n}},
		{ipsec: "tunnel", mode: "tcx", device: true, want: map[string]uint64{"esp": n}},
		{ipsec: "transport", mode: "tcx", want: map[string]uint64{"esp": n}},
		{ipsec: "transport", mode: "generic", want: map[string]uint64{"esp": n}},
	} {
		t.Run(fmt.Sprintf("%s %s, gro %t, device %t", c.ipsec, c.mode, c.gro, c.device), func(t *testing.T) {
			b := newBench(t, c.mode,
				flow.Flow{Name: "esp", Match: match(t, "esp"), Priority: 1}, flow.Flow{Name: "all", Match: match(t, "ipv4"), Priority: 2},
				flow.Flow{Name: "headless", Match: match(t, "any"), Priority: 3},
				flow.Flow{Name: "esp-out", Match: match(t, "esp"), Priority: 1, Direction: flow.Egress}, flow.Flow{Name: "all-out", Match: match(t, "ipv4"), Priority: 2, Direction: flow.Egress})
			near, far := b.wire.Near, b.wire.Far
			underlay(t, b.wire)
			if c.gro {
				if err := errors.Join(near.SetOffload(true, lab.GRO), far.SetOffload(false, lab.TSO)); err != nil {
					t.Fatal(err)
				}
			}
			toNear, toFar := "10.77.0.1", "10.77.0.2"
			if c.ipsec == "tunnel" {
				toNear, toFar = "192.0.2.1", "192.0.2.2"
				ip(t, near, "addr add 192.0.2.1/32 dev lo\nroute add 192.0.2.2/32 via 10.77.0.2 src 192.0.2.1")
				ip(t, far, "addr add 192.0.2.2/32 dev lo\nroute add 192.0.2.1/32 via 10.77.0.1 src 192.0.2.2")
			}
			if c.device {
				ip(t, near, "link add ipsec0 type xfrm dev "+near.Name+" if_id 7\nlink set ipsec0 up\nroute replace 192.0.2.2/32 dev ipsec0 src 192.0.2.1")
			}
			for _, end := range []struct {
				*lab.End
				inner, outer [2]string // own and peer's addresses
			}{
				{End: near, inner: [2]string{toNear, toFar}, outer: [2]string{"10.77.0.1", "10.77.0.2"}},
				{End: far, inner: [2]string{toFar, toNear}, outer: [2]string{"10.77.0.2", "10.77.0.1"}},
			} {
				own, peer := end.outer[0], end.outer[1]
				id := ""
				if c.device && end.End == near {
					id = " if_id 7"
				}
				for _, way := range [][2]string{{own, peer}, {peer, own}} {
					ip(t, end.End, fmt.Sprintf("xfrm state add src %s dst %s proto esp spi 0x100 reqid 1 mode %s enc cipher_null '' auth digest_null ''%s", way[0], way[1], c.ipsec, id))
				}
				tmpl := func(src, dst string) string {
					return fmt.Sprintf("%s tmpl src %s dst %s proto esp reqid 1 mode %s", id, src, dst, c.ipsec)
				}
				ip(t, end.End, fmt.Sprintf("xfrm policy add src %s dst %s proto 17 dir out %s\nxfrm policy add src %s dst %s proto 17 dir in %s",
					end.inner[0], end.inner[1], tmpl(own, peer), end.inner[1], end.inner[0], tmpl(peer, own)))
			}
			e := b.start(t)
			if c.again {
				got := awaitCondition(t, e, "ipsec-tunnel", "ipsec", true)
				if !strings.Contains(got.Text, "src 192.0.2.2/32 dst 192.0.2.1/32 dir in") {
					t.Errorf("condition %+v", got)
				}
			}
			counts := func() map[string]uint64 {
				got := make(map[string]uint64)
				for _, f := range b.cfg.Flows {
					if packets := inKernel(t, e, f.Name); packets > 0 {
						got[f.Name] = packets
					}
				}
				return got
			}
			want := maps.Clone(c.want)
			want["esp-out"] = n
			passUDP(t, far, near, toNear+":1001", n)
			passUDP(t, near, far, toFar+":1001", n)
			got := counts()
			t.Logf("%d received, %d sent: %v", n, n, got)
			if !maps.Equal(got, want) {
				t.Errorf("counted %v, want %v", got, want)
			}
			if !c.again {
				awaitLook(t, e)
				awaitCondition(t, e, "ipsec-tunnel", "ipsec", false)
				return
			}

			// The fix: XDP in the driver.
			file := b.cfg
			file.Flows, file.Interfaces = nil, []dataplane.Interface{{Name: near.Name, Mode: dataplane.ModeNative}}
			if _, err := e.SetFlows(t.Context(), nil, dataplane.SetOptions{KeepOthers: true, Config: &file}); err != nil {
				t.Fatal(err)
			}
			awaitCondition(t, e, "ipsec-tunnel", "ipsec", false)
			passUDP(t, far, near, toNear+":1001", n)
			want["esp"] += n
			if got := counts(); !maps.Equal(got, want) {
				t.Errorf("after the fix: counted %v, want %v", got, want)
			}
		})
	}
}

// awaitLook waits until the watcher has looked at everything once more.
func awaitLook(t *testing.T, e *Engine) {
	t.Helper()
	x := e.backends[0].(*xdp.Backend)
	was := x.Inspect().Refreshes
	lab.Eventually(t, "two looks of the watcher", func() bool { return x.Inspect().Refreshes >= was+2 })
}
