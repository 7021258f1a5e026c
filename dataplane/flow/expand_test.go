package flow_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/flowtally/flowtally/dataplane/flow"
)

func expand(t rapid.TB, m flow.Match) []flow.Match {
	out, err := m.Expand()
	if err != nil {
		t.Fatalf("%v: %v", m, err)
	}
	return out
}

// fewest counts the aligned powers of two that a range needs, by the textbook
// recursion over the tree of prefixes.
func fewest(first, last, lo, size int) int {
	switch hi := lo + size - 1; {
	case last < lo || hi < first:
		return 0
	case first <= lo && hi <= last:
		return 1
	}
	return fewest(first, last, lo, size/2) + fewest(first, last, lo+size/2, size/2)
}

func checkRange(t rapid.TB, first, last uint16) {
	masks := expand(t, flow.Match{UDP: &flow.Ports{Dst: flow.Port{Value: first, Last: last}}})
	var hits [65536]uint8
	for _, m := range masks {
		p := m.UDP.Dst
		if p.Last != 0 || p.Mask == 0 {
			t.Fatalf("%d-%d holds %+v", first, last, p)
		}
		for port := range hits {
			if uint16(port)&p.Mask == p.Value {
				hits[port]++
			}
		}
	}
	for port, n := range hits {
		want := uint8(0)
		if port >= int(first) && port <= int(last) {
			want = 1
		}
		if n != want {
			t.Fatalf("%d-%d: port %d is selected %d times, want %d", first, last, port, n, want)
		}
	}
	want := fewest(int(first), int(last), 0, 65536)
	if first == 0 && last == 65535 {
		want = 2 // one mask of 0 would match packets without ports
	}
	if len(masks) != want {
		t.Fatalf("%d-%d: %d masks, want %d", first, last, len(masks), want)
	}
}

func TestRangeExpandsToTheFewestMasks(t *testing.T) {
	for _, r := range [][2]uint16{{0, 65535}, {1, 65534}, {0, 1}, {65534, 65535}, {1000, 2000}, {32767, 32768}, {1, 65535}, {0, 65534}} {
		checkRange(t, r[0], r[1])
	}
	rapid.Check(t, func(t *rapid.T) {
		first := rapid.Uint16Range(0, 65534).Draw(t, "first")
		checkRange(t, first, rapid.Uint16Range(first+1, 65535).Draw(t, "last"))
	})
}

func TestExpandedMatchesSelectTheSamePackets(t *testing.T) {
	parse := func(text string) flow.Match {
		m, err := flow.ParseMatch(text)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	for _, c := range []struct {
		text string
		want []string
	}{
		{"any", []string{"any"}},
		{"ipv4 tcp dport 80", []string{"ipv4 tcp dport 80"}},
		{"tcp sport 2-3 dport 7-8", []string{
			"tcp sport 2/0xfffe dport 7", "tcp sport 2/0xfffe dport 8",
		}},
		{"udp sport 1-2 vxlan inner tcp dport 1-2", []string{
			"udp sport 1 dport 4789 vxlan inner tcp dport 1", "udp sport 1 dport 4789 vxlan inner tcp dport 2",
			"udp sport 2 dport 4789 vxlan inner tcp dport 1", "udp sport 2 dport 4789 vxlan inner tcp dport 2",
		}},
		{"gre inner udp dport 0-65535", []string{"gre inner udp dport 0/0x8000", "gre inner udp dport 32768/0x8000"}},
	} {
		m := parse(c.text)
		var got []string
		for _, one := range expand(t, m) {
			got = append(got, one.String())
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.text, diff)
		}
		if m.String() != c.text {
			t.Errorf("expanding changed %q to %q", c.text, m)
		}
	}
	if out := expand(t, parse("tcp sport 1-65534 dport 1-65534")); len(out) != 900 {
		t.Errorf("%d matches, want 900", len(out))
	}
	if out, err := parse("udp sport 1-65534 vxlan inner tcp sport 1-65534 dport 0-1").Expand(); err != nil || len(out) != 900 {
		t.Errorf("%d matches, error %v, want 900", len(out), err)
	}
	for _, m := range []flow.Match{
		parse("udp sport 1-65534 vxlan inner tcp sport 1-65534 dport 1-2"),
		{TCP: &flow.TCP{Ports: flow.Ports{Src: flow.Port{Value: 3, Last: 2}}}},
	} {
		if out, err := m.Expand(); !errors.Is(err, flow.ErrInvalid) || out != nil {
			t.Errorf("%v: %d matches, error %v, want ErrInvalid", m, len(out), err)
		}
	}
}

// The result of Expand shares no memory with its argument, nor with itself.
func TestExpandSharesNoMemory(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := drawMatch(t)
		text := m.String()
		out, err := m.Expand()
		if err != nil {
			t.Skip("too many masks")
		}
		second := ""
		if len(out) > 1 {
			second = out[1].String()
		}
		scribble(&out[0])
		if m.String() != text || len(out) > 1 && out[1].String() != second {
			t.Fatal("memory is shared")
		}
	})
}

func scribble(m *flow.Match) {
	for _, c := range m.Choices {
		if c.Set == "" {
			c.Values[0].Value.Lo = 0xaa
		}
	}
	for i := range m.VLAN {
		m.VLAN[i] = flow.VLAN{ID: number[uint16](0xaaa, 0xfff)}
	}
	if m.Eth != nil {
		m.Eth.Type = number[uint16](0xaaaa, 0xffff)
	}
	if m.IPv4 != nil {
		m.IPv4.TTL = number[uint8](0xaa, 0xff)
	}
	if m.IPv6 != nil {
		m.IPv6.HopLimit = number[uint8](0xaa, 0xff)
	}
	if m.TCP != nil {
		m.TCP.Src, m.TCP.Flags = flow.Port{Value: 0xaaaa, Mask: 0xffff}, flow.Masked[flow.TCPFlags]{Value: 0xaa, Mask: 0xff}
	}
	if m.UDP != nil {
		m.UDP.Src = flow.Port{Value: 0xaaaa, Mask: 0xffff}
	}
	if m.ESP != nil {
		m.ESP.SPI = number[uint32](0xaaaaaa, 0xffffffff)
	}
	if m.MPLS != nil {
		m.MPLS.TTL = number[uint8](0xaa, 0xff)
	}
	if m.ICMP != nil {
		m.ICMP.Type = number[uint8](0xaa, 0xff)
	}
	if m.VXLAN != nil {
		m.VXLAN.VNI = number[uint32](0xaaaaaa, 0xffffff)
		if m.VXLAN.Inner != nil {
			scribble(m.VXLAN.Inner)
		}
	}
	if m.GRE != nil {
		m.GRE.Key = number[uint32](0xaaaaaa, 0xffffffff)
		if m.GRE.Inner != nil {
			scribble(m.GRE.Inner)
		}
	}
}
