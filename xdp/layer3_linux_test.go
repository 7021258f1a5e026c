package xdp

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/internal/lab/need"
	"github.com/flowtally/flowtally/probe"
)

// testTun is a tun device in a namespace of its own, both until the test ends.
func testTun(t testing.TB) *lab.Tun {
	t.Helper()
	need.Netns(t)
	need.TCX(t)
	ns, err := lab.NewNetns("")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ns.Close() })
	return tunIn(t, ns, lab.TunOptions{})
}

// tunIn is a tun or tap device until the test ends.
func tunIn(t testing.TB, ns *lab.Netns, o lab.TunOptions) *lab.Tun {
	t.Helper()
	if _, err := os.Stat("/dev/net/tun"); err != nil {
		need.Missing(t, "tun", err.Error())
	}
	tun, err := lab.NewTun(ns, lab.Unique("tun"), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tun.Close() })
	return tun
}

// The frames of the device begin with IP. It counts and drops received packets by generic XDP and by TCX, and sent packets by TCX. A
// rule for Ethernet headers matches nothing.
func TestLayer3DeviceCountsFromTheIPHeaderOn(t *testing.T) {
	for mode, name := range map[Mode]string{ModeGeneric: "generic", ModeTCX: "tcx", ModeAuto: "tcx"} {
		t.Run(name, func(t *testing.T) { testLayer3Device(t, mode, name) })
	}
}

func testLayer3Device(t *testing.T, mode Mode, name string) {
	const packets, payload = 100, 50
	tun := testTun(t)
	for _, p := range []string{"192.0.2.1/24", "2001:db8::1/64"} {
		if err := tun.AddAddr(netip.MustParsePrefix(p)); err != nil {
			t.Fatal(err)
		}
	}
	dp := openTest(t, Options{MaxRules: 1024})
	rule := func(family Flags, egress bool, dport uint16) Rule {
		r := Rule{Counter: mustCounter(t, dp, ownerName(int(dport)+int(family)<<16+map[bool]int{true: 1 << 24}[egress])), Drop: dport == 2000, Order: uint32(dport)}
		k, m := &r.Key.Out, &r.Mask.Out
		k.Flags, m.Flags = family|FlagL4, family|FlagL4|FlagEgress
		if egress {
			k.Flags |= FlagEgress
		}
		k.Proto, m.Proto = 17, 0xff
		binary.BigEndian.PutUint16(k.L4[2:], dport)
		m.L4 = [4]byte{0, 0, 255, 255}
		return r
	}
	var rules []Rule
	for _, family := range []Flags{FlagIPv4, FlagIPv6} {
		for _, egress := range []bool{false, true} {
			rules = append(rules, rule(family, egress, 1000), rule(family, egress, 2000))
		}
	}
	mustAdd(t, dp, rules...)
	link := Rule{Counter: mustCounter(t, dp, "ethernet")}
	link.Key.Out.Flags, link.Mask.Out.Flags = FlagEth, FlagEth
	mustAdd(t, dp, link)
	for _, a := range attach(t, dp, tun.End, AttachOptions{Mode: mode, Ingress: true, Egress: true}) {
		if want := map[Hook]string{HookIngress: name, HookEgress: "tcx"}[a.Hook]; !a.Layer3 || a.Mode != want {
			t.Errorf("attachment %+v, want one of layer 3 and mode %s", a, want)
		}
	}
	for i, family := range []struct {
		flag        Flags
		local, peer string
		headers     int
	}{{FlagIPv4, "192.0.2.1", "192.0.2.2", 28}, {FlagIPv6, "2001:db8::1", "2001:db8::2", 48}} {
		local, peer := netip.MustParseAddr(family.local), netip.MustParseAddr(family.peer)
		var conns [2]*net.UDPConn // 1000: passes, 2000: is dropped
		for j, port := range []uint16{1000, 2000} {
			err := tun.NS.Do(func() (err error) {
				conns[j], err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(local, port)))
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			defer conns[j].Close()
		}
		for range packets {
			for _, port := range []uint16{2000, 1000} {
				if _, err := tun.File().Write(datagram(peer, local, port, payload)); err != nil {
					t.Fatal(err)
				}
				if _, err := conns[0].WriteToUDPAddrPort(make([]byte, payload), netip.AddrPortFrom(peer, port)); err != nil && port != 2000 {
					t.Fatal(err)
				}
			}
		}
		// The last to pass comes behind the last that is dropped.
		deadline := time.Now().Add(30 * time.Second)
		buf := make([]byte, 2048)
		conns[0].SetReadDeadline(deadline)
		for range packets {
			if _, err := conns[0].Read(buf); err != nil {
				t.Fatalf("receiving what is not dropped: %v", err)
			}
		}
		conns[1].SetReadDeadline(time.Now().Add(50 * time.Millisecond))
		if _, err := conns[1].Read(buf); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("family %s: a datagram that was to be dropped arrived (%v)", family.local, err)
		}
		tun.File().SetReadDeadline(deadline)
		for left := packets; left > 0; {
			n, err := tun.File().Read(buf)
			if err != nil {
				t.Fatalf("receiving what the device sent: %v", err)
			}
			if n != family.headers+payload {
				continue // of the kernel's own: a report of MLD
			}
			if port := binary.BigEndian.Uint16(buf[family.headers-6:]); port != 1000 {
				t.Fatalf("family %s: the device sent a datagram to port %d, which was to be dropped", family.local, port)
			}
			left--
		}
		want := Pair{packets, packets * uint64(family.headers+payload)}
		for _, r := range rules[4*i : 4*i+4] {
			if got := readOne(t, dp, r.Counter); got != want {
				t.Errorf("rule %+v, drop %t: got %+v, want %+v", r.Key.Out.Flags, r.Drop, got, want)
			}
		}
	}
	if got := readOne(t, dp, link.Counter); got != (Pair{}) {
		t.Errorf("a rule that asks for Ethernet: got %+v, want none", got)
	}
}

// datagram is a UDP packet from its IP header on.
func datagram(src, dst netip.Addr, dport uint16, payload int) []byte {
	frame, transport := bigUDP(dst.Is6(), payload)
	ip := frame[14:]
	udp := frame[transport:]
	binary.BigEndian.PutUint16(udp, 3000)
	binary.BigEndian.PutUint16(udp[2:], dport)
	if at := 12; dst.Is4() {
		copy(ip[at:], src.AsSlice())
		copy(ip[at+4:], dst.AsSlice())
		binary.BigEndian.PutUint16(ip[10:], ^sum16(ip[:20], 0)) // UDP has none, which IPv4 allows
		return ip
	}
	copy(ip[8:], src.AsSlice())
	copy(ip[24:], dst.AsSlice())
	binary.BigEndian.PutUint16(udp[6:], ^sum16(udp, uint32(sum16(ip[8:40], uint32(len(udp))+17))))
	return ip
}

// sum16 is the ones' complement sum of RFC 1071.
func sum16(b []byte, sum uint32) uint16 {
	for ; len(b) > 1; b = b[2:] {
		sum += uint32(binary.BigEndian.Uint16(b))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return uint16(sum)
}

func TestLayer3FollowsTheTypeOfTheDevice(t *testing.T) {
	for _, c := range []struct {
		d               device
		ingress, egress string // "eth", "ip" or "no"
	}{
		{device{link: "ether", kind: "veth"}, "eth", "eth"},
		{device{link: "loopback", kind: "device"}, "eth", "eth"},
		{device{link: "none", kind: "tuntap"}, "ip", "ip"},
		{device{link: "none", kind: "wireguard"}, "ip", "ip"},
		{device{link: "ipip", kind: "ipip"}, "ip", "ip"},
		{device{link: "sit", kind: "sit"}, "no", "ip"},
		{device{link: "none", kind: "xfrm"}, "no", "ip"},
		{device{link: "gre", kind: "gre"}, "no", "no"},
		{device{link: "infiniband", kind: "ipoib"}, "no", "no"},
	} {
		for h, want := range map[Hook]string{HookIngress: c.ingress, HookEgress: c.egress} {
			layer3, err := c.d.layer3(h)
			got := map[bool]string{false: "eth", true: "ip"}[layer3]
			if err != nil {
				got = "no"
			}
			var why *probe.UnsupportedError
			if got != want || err != nil && !errors.As(err, &why) {
				t.Errorf("%+v on %s: %s (%v), want %s", c.d, h, got, err, want)
			}
		}
	}
}

// The next process knows that frames of a device begin with IP before it has asked the kernel about the device.
func TestLayer3IsAdopted(t *testing.T) {
	tun := testTun(t)
	dir := pinDir(t)
	open := func() *Datapath {
		dp, err := Open(Options{PinDir: dir, MaxRules: 64})
		if err != nil {
			t.Fatal(err)
		}
		return dp
	}
	dp := open()
	attach(t, dp, tun.End, AttachOptions{Egress: true})
	if err := dp.Close(); err != nil {
		t.Fatal(err)
	}
	dp = open()
	defer dp.Destroy()
	if all := dp.Attachments(); len(all) != 1 || !all[0].Layer3 || !all[0].Adopted {
		t.Errorf("attachments %+v, want one of layer 3 that was adopted", all)
	}
	if again := attach(t, dp, tun.End, AttachOptions{Egress: true}); again[0].Fresh {
		t.Error("the program was attached again")
	}
}
