package oracle_test

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/gopacket/gopacket/layers"
	"pgregory.net/rapid"

	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/oracle"
)

// elements are those of a set, with blanks between them.
func elements(text string) (out []netip.Prefix) {
	for word := range strings.FieldsSeq(text) {
		out = append(out, netip.MustParsePrefix(word))
	}
	return out
}

// ipFrame returns a frame of IP with these addresses, which have one version.
func ipFrame(src, dst netip.Addr) []byte {
	b := make([]byte, 12, 74)
	if src.Is4() {
		b = append(b, 8, 0, 0x45, 0, 0, 20, 0, 0, 0, 0, 64, 59, 0, 0)
	} else {
		b = append(b, 0x86, 0xdd, 0x60, 0, 0, 0, 0, 0, 59, 64)
	}
	return append(append(b, src.AsSlice()...), dst.AsSlice()...)
}

func TestNamedSetsMatchAddressesOfTheirElements(t *testing.T) {
	sets := map[string][]netip.Prefix{
		"block": elements("10.0.0.0/8 192.0.2.1/32 10.1.0.0/16 2001:db8::/32 ::1/128"),
		"empty": nil,
		"all":   elements("0.0.0.0/0 ::/0"),
		"6":     elements("::ffff:10.0.0.0/104"),
	}
	v4 := ipFrame(netip.MustParseAddr("10.1.2.3"), netip.MustParseAddr("192.0.2.2"))
	v6 := ipFrame(netip.MustParseAddr("2001:db8::7"), netip.MustParseAddr("::ffff:10.0.0.1"))
	arp := build(t, eth(tARP), raw(make([]byte, 28)...))
	gre := build(t, eth(tIPv4), ip4(pGRE), raw(0, 0, 8, 0), raw(v4[14:]...))
	later := build(t, eth(tIPv4), fragment4(layers.IPProtocolTCP, false, 100), raw(1, 2, 3, 4))
	for _, c := range []struct {
		match string
		hits  []string
	}{
		{"ipv4 src @block", []string{"v4", "gre", "later"}}, // ip4 of the tests comes from 10.0.0.1
		{"ipv4 dst @block", nil},
		{"ipv4 dst != @block", []string{"v4", "gre", "later"}},
		{"ipv6 src @block", []string{"v6"}},
		{"ipv6 dst @block", nil},
		{"ipv6 src != @block", nil},
		{"ipv4 src @empty", nil},
		{"ipv4 src != @empty", []string{"v4", "gre", "later"}},
		{"ipv6 dst != @empty src @block", []string{"v6"}},
		{"ipv4 src @all", []string{"v4", "gre", "later"}},
		{"ipv4 src != @all", nil},
		{"ipv6 src @all", []string{"v6"}},
		{"ipv4 src @6", nil},
		{"ipv6 dst @6", []string{"v6"}},
		{"gre inner ipv4 src @block", []string{"gre"}},
		{"gre inner ipv4 dst @block", nil},
		{"ipv4 src != @block gre inner ipv4 src @block", nil},
	} {
		f := flow.MustParse("f", c.match)
		m, err := oracle.NewWithSets([]flow.Flow{f}, sets)
		if err != nil {
			t.Errorf("%s: %v", c.match, err)
			continue
		}
		for name, b := range map[string][]byte{"v4": v4, "v6": v6, "arp": arp, "gre": gre, "later": later} {
			if _, hit := m.Match(oracle.Packet{Frame: b}); hit != slices.Contains(c.hits, name) {
				t.Errorf("%s: packet %s matches: %v", c.match, name, hit)
			}
		}
	}
}

// A set that is missing must not count as one without elements.
func TestAMatcherWithoutItsSetsIsNotMade(t *testing.T) {
	f := flow.MustParse("f", "gre inner ipv4 src @block")
	for _, sets := range []map[string][]netip.Prefix{nil, {"allow": nil}, {"block": make([]netip.Prefix, 1)}, {"block": elements("10.0.0.1/8")}} {
		if _, err := oracle.NewWithSets([]flow.Flow{f}, sets); err == nil || !strings.Contains(err.Error(), "block") {
			t.Errorf("sets %v: %v", sets, err)
		}
	}
	panics := func(do func()) (did bool) {
		defer func() { did = recover() != nil }()
		do()
		return false
	}
	if !panics(func() { oracle.New([]flow.Flow{f}) }) {
		t.Error("New takes a flow that names a set")
	}
	f.Match = flow.MustParse("f", "ipv4 src @block").Match
	p := oracle.Packet{Frame: ipFrame(netip.MustParseAddr("10.1.2.3"), netip.MustParseAddr("192.0.2.2"))}
	if !panics(func() { oracle.Matches(f.Match, p) }) {
		t.Error("Matches takes a match that names a set")
	}
}

// The matcher finds an address in a set if and only if a prefix of the set contains it.
func TestNamedSetsAreThoseOfBruteForce(t *testing.T) {
	hits, misses := 0, 0
	addr := func(t *rapid.T, bytes int) netip.Addr {
		few := rapid.SampledFrom([]uint64{0, 1, 0x0a000001, 0x7fffffff, 0x80000000, 0xffffffff}) // so that they meet
		b := binary.BigEndian.AppendUint64(nil, few.Draw(t, "high"))
		b = binary.BigEndian.AppendUint64(b, few.Draw(t, "low")<<rapid.SampledFrom([]int{0, 8, 32}).Draw(t, "shift"))
		a, _ := netip.AddrFromSlice(b[16-bytes:])
		return a
	}
	rapid.Check(t, func(t *rapid.T) {
		sets := make(map[string][]netip.Prefix)
		for _, name := range []string{"a", "b"} {
			sets[name] = nil
			for range rapid.IntRange(0, 8).Draw(t, "elements") {
				a := addr(t, rapid.SampledFrom([]int{4, 16}).Draw(t, "version"))
				p, _ := a.Prefix(rapid.IntRange(0, a.BitLen()).Draw(t, "bits"))
				sets[name] = append(sets[name], p)
			}
		}
		contains := func(name string, a netip.Addr) bool {
			return slices.ContainsFunc(sets[name], func(p netip.Prefix) bool { return p.Contains(a) })
		}
		bytes := rapid.SampledFrom([]int{4, 16}).Draw(t, "version of the packet")
		src, dst := addr(t, bytes), addr(t, bytes)
		p := oracle.Packet{Frame: ipFrame(src, dst)}
		for _, c := range []struct {
			match string
			want  bool
		}{
			{"ipv4 src @a", bytes == 4 && contains("a", src)},
			{"ipv6 src @a", bytes == 16 && contains("a", src)},
			{"ipv4 dst != @a", bytes == 4 && !contains("a", dst)},
			{"ipv6 dst != @b src @a", bytes == 16 && !contains("b", dst) && contains("a", src)},
		} {
			m, err := oracle.NewWithSets([]flow.Flow{flow.MustParse("f", c.match)}, sets)
			if err != nil {
				t.Fatal(err)
			}
			if _, got := m.Match(p); got != c.want {
				t.Fatalf("%s: src %s, dst %s, sets %v: matches %v", c.match, src, dst, sets, got)
			}
			if c.want {
				hits++
			} else {
				misses++
			}
		}
	})
	t.Logf("%d hits, %d misses", hits, misses)
	if hits < misses/20 {
		t.Error("the test looks at little")
	}
}
