package ibvtest_test

import (
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/lab/frame"
	"github.com/flowtally/flowtally/internal/lab/seed"
	"github.com/flowtally/flowtally/internal/oracle"
	"github.com/flowtally/flowtally/internal/oracle/gen"
)

// This needs no netdev, and runs under sanitizers.
func TestNICRulesMatchTheirPackets(t *testing.T) {
	d := startNIC(t, sanitizedNIC(t), nil)
	for name, test := range map[string]func(*testing.T, *nicDriver){
		"agrees with linear":       agreesWithLinear,
		"order":                    ordersRules,
		"refuses":                  refusesRules,
		"tables fill":              fillsTables,
		"fields need their header": needsHeaders,
		"terms of NICs alone":      parsesNICTerms,
		"looks at the first bytes": stopsAtTheLimit,
		"forgets with a change":    forgets,
	} {
		t.Run(name, func(t *testing.T) {
			defer func(t testing.TB) { d.t = t }(d.t)
			d.t = t
			d.must("fresh")
			test(t, d)
		})
	}
}

// The engine takes the packets that dataplane/flow says, for every flow that
// it can express, whole frames and damaged ones, by priority and insertion.
func agreesWithLinear(t *testing.T, d *nicDriver) {
	rng := seed.Rand(t)
	var flowsSeen, left, packets, hits int
	for range 300 { // a NIC takes a third of the flows that are drawn
		d.must("fresh")
		var flows []flow.Flow
		seen := make(map[string]bool) // rules with the same match count together: ordersRules has them
		for _, f := range gen.Flows(rng, 1+rng.IntN(24)) {
			matches, ok := nicMatches(f.Match)
			same := slices.ContainsFunc(matches, func(m nicMatch) bool { return seen[fmt.Sprint(f.Priority, f.Direction, m)] })
			if !ok || len(matches) > 64 || same {
				left++
				continue
			}
			for _, m := range matches {
				seen[fmt.Sprint(f.Priority, f.Direction, m)] = true
			}
			for _, m := range matches {
				r := nicRule{priority: f.Priority, counter: len(flows), match: m}
				if f.Direction == flow.Egress {
					r.flags |= nicEgress
				}
				if errno := d.rule(r); errno != 0 {
					t.Fatalf("%v: %v", f.Match, errno)
				}
			}
			flows = append(flows, f)
		}
		flowsSeen += len(flows)
		matcher := oracle.New(flows)
		for range 100 {
			p := oracle.Packet{Frame: gen.Packet(rng, flows), Direction: flow.Direction(rng.IntN(2))}
			ask := fmt.Sprintf("count %d %d %x", p.Direction, len(p.Frame), p.Frame)
			words := d.must("%s", ask)
			if again := d.must("%s", ask); !slices.Equal(again, words) {
				t.Fatalf("counted by %v, then by %v of:\n%s\n%s", words, again, list(flows), hex.Dump(p.Frame))
			}
			packets++
			if words[0] != "0" {
				t.Fatalf("a header is cut, though all is at hand:\n%s", hex.Dump(p.Frame))
			}
			want := ""
			if i, ok := matcher.Match(p); ok {
				want = fmt.Sprint(i)
				hits++
			}
			if got := strings.Join(words[1:], " "); got != want {
				t.Fatalf("counted by %q, want %q of:\n%s\n%s", got, want, list(flows), hex.Dump(p.Frame))
			}
		}
	}
	t.Logf("%d flows (%d not expressible), %d packets, %d hit", flowsSeen, left, packets, hits)
	if hits*10 < packets || flowsSeen < 1000 {
		t.Error("too little was compared")
	}
}

func list(flows []flow.Flow) string {
	var b strings.Builder
	for i, f := range flows {
		fmt.Fprintf(&b, "%d: priority %d %v %v\n", i, f.Priority, f.Direction, f.Match)
	}
	return b.String()
}

// udp is a match of UDP packets to a port, under a mask.
func udp(dport, mask uint16) nicMatch {
	var m nicMatch
	m.Value.Outer.Present, m.Mask.Outer.Present = nicUDP, nicUDP
	m.Value.Outer.Dport, m.Mask.Outer.Dport = dport, mask
	return m
}

// count is the counters that take a UDP packet to a port.
func (d *nicDriver) count(flags uint32, dport uint16) []int {
	f := frame.Build(frame.Eth{}, frame.IPv4{Src: frame.Addr("192.0.2.1"), Dst: frame.Addr("192.0.2.2")}, frame.UDP{Dst: dport}, frame.Payload(8))
	var by []int
	for _, word := range d.must("count %d %d %s", flags&nicEgress, len(f), hex.EncodeToString(f))[1:] {
		by = append(by, int(number(d.t, word)))
	}
	return by
}

func ordersRules(t *testing.T, d *nicDriver) {
	anything := nicMatch{}
	for _, c := range []struct {
		name  string
		rules []nicRule // counted by their place
		want  []int
	}{
		{"a lower number first", []nicRule{{priority: 2, match: udp(53, 0xffff)}, {priority: 1, match: anything}}, []int{1}},
		{"the one added first", []nicRule{{priority: 1, match: anything}, {priority: 1, match: udp(53, 0xffff)}}, []int{0}},
		{"the same match counts together", []nicRule{{priority: 1, match: udp(53, 0xffff)}, {priority: 1, match: anything}, {priority: 1, match: udp(53, 0xffff)}}, []int{0, 2}},
		{"the same match, of which one goes on", []nicRule{{match: anything}, {flags: nicDontTrap, match: anything}, {flags: nicDontTrap, match: anything}, {match: anything}}, []int{0, 1, 2, 3}},
		{"the one that matches", []nicRule{{match: udp(54, 0xffff)}, {match: udp(52, 0xfffe)}, {match: udp(0, 0)}}, []int{1}},
		{"none", []nicRule{{match: udp(54, 0xffff)}}, nil},
		{"the other direction", []nicRule{{flags: nicEgress, match: anything}}, nil},
		{"dont-trap goes on to the next priority", []nicRule{{priority: 1, flags: nicDontTrap, match: anything}, {priority: 2, match: udp(53, 0xffff)}, {priority: 3, match: anything}}, []int{0, 1}},
		{"dont-trap goes on over several", []nicRule{{priority: 1, flags: nicDontTrap, match: anything}, {priority: 2, flags: nicDontTrap, match: anything}, {priority: 3, flags: nicDontTrap, match: anything}}, []int{0, 1, 2}},
		{"one dont-trap of a priority", []nicRule{{flags: nicDontTrap, match: anything}, {flags: nicDontTrap, match: udp(53, 0xffff)}, {match: anything}}, []int{0, 2}},
		{"dont-trap before the others of its priority", []nicRule{{match: anything}, {flags: nicDontTrap, match: udp(53, 0xffff)}}, []int{0, 1}},
		{"a trap ends it", []nicRule{{priority: 1, match: anything}, {priority: 2, flags: nicDontTrap, match: anything}}, []int{0}},
		{"default miss ends it", []nicRule{{priority: 1, flags: nicDefaultMiss, match: anything}, {priority: 2, match: anything}}, []int{0}},
		{"last is behind the highest number", []nicRule{{priority: 0, flags: nicLast, match: anything}, {priority: 65535, match: udp(53, 0xffff)}}, []int{1}},
		{"last is looked at", []nicRule{{priority: 0, flags: nicLast, match: anything}, {priority: 65535, flags: nicDontTrap, match: anything}}, []int{0, 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			d.must("fresh")
			for i, r := range c.rules {
				r.counter = i
				if errno := d.rule(r); errno != 0 {
					t.Fatal(errno)
				}
			}
			got := d.count(0, 53)
			slices.Sort(got)
			if !slices.Equal(got, c.want) {
				t.Errorf("counted by %v, want %v", got, c.want)
			}
		})
	}
}

// A table has 65,536 entries: six masks get a seventh each, and each further rule an entry of the last seventh. A rule
// shares the entry of its match, and an entry is free when its last rule goes.
func fillsTables(t *testing.T, d *nicDriver) {
	d.must("fresh")
	const part, rest = 65536 / 7, 65536 - 6*(65536/7)
	rules := 0
	add := func(m nicMatch, flags uint32) syscall.Errno {
		errno := d.rule(nicRule{flags: flags, match: m})
		if errno == 0 {
			rules++
		}
		return errno
	}
	for i := range 6 {
		if errno := add(udp(0, 1<<i), 0); errno != 0 {
			t.Fatal(errno)
		}
	}
	fits := 0
	for port := range 65536 {
		if errno := add(udp(uint16(port), 0xffff), 0); errno == syscall.ENOSPC {
			break
		} else if errno != 0 {
			t.Fatal(errno)
		}
		fits++
	}
	if fits != rest {
		t.Errorf("behind six masks %d rules of a seventh fit, want %d", fits, rest)
	}
	if errno := add(udp(32, 32), 0); errno != 0 {
		t.Errorf("a rule in the part of its mask: %v", errno)
	}
	if errno := add(udp(7, 0xffff), 0); errno != 0 {
		t.Errorf("a rule that shares an entry of the full table: %v", errno)
	}
	if errno := add(udp(7, 0xffff), nicDrop); errno != syscall.EEXIST {
		t.Errorf("a rule that drops, beside one with the same match that does not: %v", errno)
	}
	if errno := add(udp(1, 0xffff), nicDontTrap); errno != 0 {
		t.Errorf("another table: %v", errno)
	}
	d.must("del %d", 6+7)
	if errno := add(udp(60000, 0xffff), 0); errno != syscall.ENOSPC {
		t.Errorf("an entry that another rule has still: %v", errno)
	}
	d.must("del %d", rules-2) // the rule that shared it
	if errno := add(udp(60000, 0xffff), 0); errno != 0 {
		t.Errorf("an entry that no rule has: %v", errno)
	}
	t.Logf("a part of a mask: %d entries; of all other masks together: %d", part, fits)
}

func refusesRules(t *testing.T, d *nicDriver) {
	for name, change := range map[string]func(*nicMatch){
		"a value outside its mask":           func(m *nicMatch) { m.Value.Outer.Sport = 1 },
		"an address of no family":            func(m *nicMatch) { m.Mask.Outer.Src[0] = 255 },
		"an inner address of no family":      func(m *nicMatch) { m.Mask.Inner.Dst[15] = 1 },
		"ports of a packet without":          func(m *nicMatch) { m.Mask.Outer.Present |= nicPORTS; m.Mask.Outer.Sport = 1 },
		"an MPLS entry of no tunnel":         func(m *nicMatch) { m.Mask.MPLS = 1 },
		"a key of a GRE header without one":  func(m *nicMatch) { m.Mask.Tunnel = nicGREKEY; m.Mask.GREKey = 1 },
		"a presence bit outside of its mask": func(m *nicMatch) { m.Value.Tunnel = nicVXLAN },
	} {
		m := udp(53, 0xffff)
		if change(&m); d.rule(nicRule{match: m}) != syscall.EINVAL {
			t.Errorf("%s is taken", name)
		}
	}
}

// A field is matched only where its header is, also against 0.
func needsHeaders(t *testing.T, d *nicDriver) {
	bare := frame.Build(frame.Eth{Type: 0x0806}, frame.Payload(46))
	var layer nicLayer
	set := map[string]func(*nicKey){
		"vlan":          func(k *nicKey) { k.Outer.TCI[0] = 1 },
		"second vlan":   func(k *nicKey) { k.Outer.TCI[1] = 1 },
		"ip_protocol":   func(k *nicKey) { k.Outer.Proto = 1 },
		"tos":           func(k *nicKey) { k.Outer.TOS = 1 },
		"ttl":           func(k *nicKey) { k.Outer.TTL = 1 },
		"frag":          func(k *nicKey) { k.Outer.Frag = 1 },
		"sport":         func(k *nicKey) { k.Outer.Sport = 1 },
		"tcp_flags":     func(k *nicKey) { k.Outer.TCPFlags = 1 },
		"flow_label":    func(k *nicKey) { k.Outer.FlowLabel = 1 },
		"esp":           func(k *nicKey) { k.Outer.SPI = 1 },
		"mpls":          func(k *nicKey) { k.Outer.MPLS = 1 },
		"icmp":          func(k *nicKey) { k.Outer.ICMPCode = 1 },
		"inner mac":     func(k *nicKey) { k.Inner.DMAC[0] = 1 },
		"vni":           func(k *nicKey) { k.VNI = 1 },
		"gre_key":       func(k *nicKey) { k.GREKey = 1 },
		"gre_protocol":  func(k *nicKey) { k.GREProtocol = 1 },
		"empty is open": func(*nicKey) {},
	}
	for name, mask := range set {
		d.must("fresh")
		m := nicMatch{Value: nicKey{Outer: layer}}
		mask(&m.Mask)
		if errno := d.rule(nicRule{match: m}); errno != 0 {
			t.Fatalf("%s: %v", name, errno)
		}
		taken := len(d.must("count 0 %d %s", len(bare), hex.EncodeToString(bare))) == 2
		if want := name == "empty is open"; taken != want {
			t.Errorf("%s == 0 matches an ARP packet: %t, want %t", name, taken, want)
		}
	}
}

// Fields that flow cannot express: kinds of tags, the protocol behind IPv6's extension headers, TCP
// flags, ESP, MPLS.
func parsesNICTerms(t *testing.T, d *nicDriver) {
	var (
		ip4   = frame.IPv4{Src: frame.Addr("192.0.2.1"), Dst: frame.Addr("192.0.2.2")}
		ip6   = frame.IPv6{Src: frame.Addr("2001:db8::1"), Dst: frame.Addr("2001:db8::2")}
		entry = frame.Bytes{0x12, 0x34, 0x51, 0x40} // label 0x12345, TC 0, S 1, TTL 64
	)
	with := func(h frame.IPv4, proto uint8) frame.IPv4 { h.Proto = proto; return h }
	for _, c := range []struct {
		name  string
		frame []byte
		want  func(*nicKey)
	}{
		{"a C-tag in an S-tag", frame.Build(frame.Eth{}, frame.VLAN{ID: 7, PCP: 5, DEI: true, TPID: frame.TypeQinQ}, frame.VLAN{ID: 8}, ip4, frame.UDP{}), func(k *nicKey) {
			k.Outer.Present = nicSVLAN | nicCVLAN2
			k.Outer.TCI = [2]uint16{0xb007, 8}
		}},
		{"an S-tag in a C-tag", frame.Build(frame.Eth{}, frame.VLAN{ID: 7}, frame.VLAN{ID: 8, TPID: frame.TypeQinQ}, ip4, frame.UDP{}), func(k *nicKey) {
			k.Outer.Present = nicCVLAN | nicSVLAN2
		}},
		{"the upper protocol of IPv6", frame.Build(frame.Eth{}, ip6, frame.Ext{Type: frame.HopByHop}, frame.TCP{Flags: 0x12}), func(k *nicKey) {
			k.Outer.Present = nicIPV6 | nicTCP | nicPORTS | nicTCPFLAGS
			k.Outer.Proto, k.Outer.TCPFlags = 6, 0x12
		}},
		{"a first fragment", frame.Build(frame.Eth{}, frame.IPv4{Src: ip4.Src, Dst: ip4.Dst, MF: true}, frame.UDP{Dst: 9}), func(k *nicKey) {
			k.Outer.Frag, k.Outer.Dport = 1, 9
		}},
		{"a fragment header", frame.Build(frame.Eth{}, ip6, frame.FragmentExt(0, false, 1), frame.UDP{Dst: 9}), func(k *nicKey) {
			k.Outer.Frag, k.Outer.Dport = 1, 9
		}},
		{"ESP", frame.Build(frame.Eth{}, with(ip4, 50), frame.Bytes{1, 2, 3, 4}), func(k *nicKey) {
			k.Outer.Present, k.Outer.SPI = nicESP, 0x01020304
		}},
		{"MPLS", frame.Build(frame.Eth{Type: 0x8847}, entry), func(k *nicKey) {
			k.Outer.Present, k.Outer.MPLS = nicMPLS, 0x12345140
		}},
		{"MPLS in GRE", frame.Build(frame.Eth{}, ip4, frame.GRE{Protocol: 0x8847}, entry), func(k *nicKey) {
			k.Tunnel, k.MPLS, k.GREProtocol = nicGRE|nicMPLSGRE, 0x12345140, 0x8847
		}},
		{"MPLS in UDP", frame.Build(frame.Eth{}, ip4, frame.UDP{Dst: 6635}, entry), func(k *nicKey) {
			k.Tunnel, k.MPLS = nicMPLSUDP, 0x12345140
		}},
		{"GRE's words", frame.Build(frame.Eth{}, ip4, frame.GRE{Checksum: true, Sequence: new(uint32)}, ip6, frame.UDP{Dst: 3}), func(k *nicKey) {
			k.Tunnel, k.GREProtocol = nicGRE|nicGRECSUM|nicGRESEQ, 0x86dd
			k.Inner.Present, k.Inner.Dport = nicIPV6|nicPORTS, 3
		}},
	} {
		// Each field that want sets must be there, to the bit.
		var m nicMatch
		c.want(&m.Value)
		m.Mask = m.Value
		d.must("fresh")
		if errno := d.rule(nicRule{match: full(m)}); errno != 0 {
			t.Fatalf("%s: %v", c.name, errno)
		}
		if words := d.must("count 0 %d %s", len(c.frame), hex.EncodeToString(c.frame)); len(words) != 2 {
			t.Errorf("%s is not seen:\n%s\n%v", c.name, hex.Dump(c.frame), d.must("parse %d %s", len(c.frame), hex.EncodeToString(c.frame)))
		}
	}
}

// The engine's cached results for a packet hold until the rules change.
func forgets(t *testing.T, d *nicDriver) {
	rules := 0
	add := func(r nicRule) {
		if errno := d.rule(r); errno != 0 {
			t.Fatal(errno)
		}
		rules++
	}
	for i := range 100 { // enough to remember at all
		add(nicRule{priority: 5, counter: i, match: udp(uint16(1000+i), 0xffff)})
	}
	check := func(when string, want ...int) {
		slices.Sort(want)
		for range 2 {
			if got := d.count(0, 1050); !slices.Equal(got, want) {
				t.Fatalf("%s: counted by %v, want %v", when, got, want)
			}
		}
	}
	check("first", 50)
	add(nicRule{priority: 9, counter: 200, match: udp(1050, 0xffff)})
	check("with a later rule", 50)
	add(nicRule{priority: 1, counter: 201, flags: nicDontTrap, match: udp(1050, 0xffff)})
	check("with an earlier rule that passes it on", 201, 50)
	d.must("del 50")
	check("without the rule", 201, 200)
	for i := range 20 { // more winners than are remembered
		add(nicRule{priority: uint16(10 + i), counter: 300 + i, flags: nicDontTrap, match: udp(1050, 0xffff)})
	}
	d.must("del 100")
	want := []int{201}
	for i := range 20 {
		want = append(want, 300+i)
	}
	check("with many winners", want...)
}

// full widens the masks of the fields that a test sets to the whole field.
func full(m nicMatch) nicMatch {
	for _, l := range []*nicLayer{&m.Mask.Outer, &m.Mask.Inner} {
		for _, p := range []*uint16{&l.TCI[0], &l.TCI[1], &l.Dport} {
			if *p != 0 {
				*p = 0xffff
			}
		}
		if l.Proto != 0 {
			l.Proto = 0xff
		}
		if l.TCPFlags != 0 {
			l.TCPFlags = 0x1ff
		}
	}
	return m
}

// A header behind the first 1920 bytes is not there, and the parser says so.
func stopsAtTheLimit(t *testing.T, d *nicDriver) {
	const limit = 1920 // NIC_PARSE_MAX
	for _, c := range []struct {
		body int // of a destination options header of 2 bytes more; in front of it are 54 bytes
		want string
	}{{1854, "0 0"}, {1862, "1"}} {
		f := frame.Build(frame.Eth{}, frame.IPv6{Src: frame.Addr("2001:db8::1"), Dst: frame.Addr("2001:db8::2")},
			frame.Ext{Type: frame.Destination, Body: make([]byte, c.body)}, frame.UDP{Dst: 53}, frame.Payload(64))
		d.must("fresh")
		if errno := d.rule(nicRule{match: udp(53, 0xffff)}); errno != 0 {
			t.Fatal(errno)
		}
		if got := strings.Join(d.must("count 0 %d %s", len(f), hex.EncodeToString(f)), " "); got != c.want {
			t.Errorf("with %d bytes of options: %q, want %q", c.body, got, c.want)
		}
		// The kernel copies no more than one slot: the truncated frame gives the same result.
		short := f[:limit]
		if got := strings.Join(d.must("count 0 %d %s", len(f), hex.EncodeToString(short)), " "); got != c.want {
			t.Errorf("with %d bytes of options, %d at hand: %q, want %q", c.body, limit, got, c.want)
		}
	}
}
