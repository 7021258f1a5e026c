package ibvtest_test

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/flowtally/flowtally/internal/lab/seed"
)

// mlx5Program is libmlx5's reading of match parameters, under sanitizers.
func mlx5Program(t testing.TB) string {
	t.Helper()
	return compile(t, "mlx5-match", []string{"src/mlx5_match.c", "src/mlx5_prm.c", "testdata/mlx5/driver.c"}, sanitized...)
}

// prm is struct fte_match_param: 5 sections of 512 bits that mean something, 8 in all.
type prm [512]byte

const (
	outer = 512 * iota // bits
	misc
	inner
	misc2
	misc3
	misc4
)

// set writes a field of up to 64 bits.
func (p *prm) set(bit, width int, value uint64) *prm {
	for i := bit + width - 1; i >= bit; i-- {
		p[i/8] |= byte(value&1) << (7 - i%8)
		value >>= 1
	}
	return p
}

func unkey(t testing.TB, text string) (k nicKey) {
	t.Helper()
	b, err := hex.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	if err := binary.Read(bytes.NewReader(b), binary.NativeEndian, &k); err != nil {
		t.Fatal(err)
	}
	return k
}

// matchPRM returns the match that a matcher's mask and a flow's value produce.
func (d *nicDriver) matchPRM(mask, value *prm) (m nicMatch, multicast bool, errno syscall.Errno) {
	d.t.Helper()
	words, errno := d.ask("match %x %x", mask[:], value[:])
	if errno != 0 {
		return m, false, errno
	}
	return nicMatch{unkey(d.t, words[1]), unkey(d.t, words[2])}, words[0] == "1", 0
}

// For each field of the PRM, at its bits in rdma-core's and the kernel's headers, the engine gets
// the value, the mask, and the header with the field.
func TestMLX5MatchFieldsBecomeTheEngines(t *testing.T) {
	d := startNIC(t, mlx5Program(t), nil)
	type field struct {
		name       string
		bit, width int
		value      uint64
		want       func(v, m *nicKey)
	}
	layer := func(l *nicLayer, bits uint32) *nicLayer { l.Present |= bits; return l }
	fields := []field{
		{"gre_c_present", misc + 0x00, 1, 1, func(v, m *nicKey) { v.Tunnel, m.Tunnel = nicGRE|nicGRECSUM, nicGRE|nicGRECSUM }},
		{"gre_k_present", misc + 0x02, 1, 1, func(v, m *nicKey) { v.Tunnel, m.Tunnel = nicGRE|nicGREKEY, nicGRE|nicGREKEY }},
		{"no gre_k_present", misc + 0x02, 1, 0, func(v, m *nicKey) { v.Tunnel, m.Tunnel = nicGRE, nicGRE|nicGREKEY }},
		{"gre_s_present", misc + 0x03, 1, 1, func(v, m *nicKey) { v.Tunnel, m.Tunnel = nicGRE|nicGRESEQ, nicGRE|nicGRESEQ }},
		{"gre_protocol", misc + 0x70, 16, 0x6558, func(v, m *nicKey) {
			v.Tunnel, m.Tunnel, v.GREProtocol, m.GREProtocol = nicGRE, nicGRE, 0x6558, 0xffff
		}},
		{"gre_key", misc + 0x80, 32, 0x01020304, func(v, m *nicKey) {
			v.Tunnel, m.Tunnel, v.GREKey, m.GREKey = nicGRE|nicGREKEY, nicGRE|nicGREKEY, 0x01020304, 0xffffffff
		}},
		{"vxlan_vni", misc + 0xa0, 24, 0x010203, func(v, m *nicKey) { v.Tunnel, m.Tunnel, v.VNI, m.VNI = nicVXLAN, nicVXLAN, 0x010203, 0xffffff }},
		{"outer_esp_spi", misc + 0x180, 32, 7, func(v, m *nicKey) { layer(&v.Outer, nicESP).SPI = 7; layer(&m.Outer, nicESP).SPI = 0xffffffff }},
		{"inner_esp_spi", misc + 0x160, 32, 7, func(v, m *nicKey) { layer(&v.Inner, nicESP).SPI = 7; layer(&m.Inner, nicESP).SPI = 0xffffffff }},
		{"outer_ipv6_flow_label", misc + 0xec, 20, 9, func(v, m *nicKey) {
			layer(&v.Outer, nicIPV6).FlowLabel = 9
			layer(&m.Outer, nicIPV6).FlowLabel = 0xfffff
		}},
		{"inner_ipv6_flow_label", misc + 0x10c, 20, 9, func(v, m *nicKey) {
			layer(&v.Inner, nicIPV6).FlowLabel = 9
			layer(&m.Inner, nicIPV6).FlowLabel = 0xfffff
		}},
		{"outer_first_mpls", misc2, 32, 5, func(v, m *nicKey) { layer(&v.Outer, nicMPLS).MPLS = 5; layer(&m.Outer, nicMPLS).MPLS = 0xffffffff }},
		{"inner_first_mpls", misc2 + 0x20, 32, 5, func(v, m *nicKey) { layer(&v.Inner, nicMPLS).MPLS = 5; layer(&m.Inner, nicMPLS).MPLS = 0xffffffff }},
		{"outer_first_mpls_over_gre", misc2 + 0x40, 32, 5, func(v, m *nicKey) {
			v.Tunnel, m.Tunnel, v.MPLS, m.MPLS = nicGRE|nicMPLSGRE, nicGRE|nicMPLSGRE, 5, 0xffffffff
		}},
		{"outer_first_mpls_over_udp", misc2 + 0x60, 32, 5, func(v, m *nicKey) { v.Tunnel, m.Tunnel, v.MPLS, m.MPLS = nicMPLSUDP, nicMPLSUDP, 5, 0xffffffff }},
		{"no cvlan_tag", 0x90, 1, 0, func(_, m *nicKey) { layer(&m.Outer, nicCVLAN|nicTAG) }},
		{"icmp_type", misc3 + 0x100, 8, 8, func(v, m *nicKey) {
			layer(&v.Outer, nicICMP|nicIPV4).ICMPType = 8
			layer(&m.Outer, nicICMP|nicIPV4).ICMPType = 0xff
		}},
		{"icmpv6_code", misc3 + 0x118, 8, 1, func(v, m *nicKey) {
			layer(&v.Outer, nicICMP|nicIPV6).ICMPCode = 1
			layer(&m.Outer, nicICMP|nicIPV6).ICMPCode = 0xff
		}},
	}
	for name, base := range map[string]int{"outer ": outer, "inner ": inner} {
		of := func(k *nicKey) *nicLayer {
			if base == inner {
				return &k.Inner
			}
			return &k.Outer
		}
		second := map[bool][3]int{false: {misc + 0x40, misc + 0x60, misc + 0x62}, true: {misc + 0x50, misc + 0x61, misc + 0x63}}[base == inner]
		for _, f := range []struct {
			name       string
			bit, width int
			value      uint64
			present    uint32
			put        func(l *nicLayer, n uint64)
		}{
			{"smac", base, 48, 0x0203040506aa, 0, func(l *nicLayer, n uint64) { be48(&l.SMAC, n) }},
			{"dmac", base + 0x40, 48, 0x0203040506bb, 0, func(l *nicLayer, n uint64) { be48(&l.DMAC, n) }},
			{"ethertype", base + 0x30, 16, 0x0806, nicETH, func(l *nicLayer, n uint64) { l.EtherType = uint16(n) }},
			{"first_prio", base + 0x70, 3, 5, nicTAG, func(l *nicLayer, n uint64) { l.TCI[0] = uint16(n) << 13 }},
			{"first_cfi", base + 0x73, 1, 1, nicTAG, func(l *nicLayer, n uint64) { l.TCI[0] = uint16(n) << 12 }},
			{"first_vid", base + 0x74, 12, 100, nicTAG, func(l *nicLayer, n uint64) { l.TCI[0] = uint16(n) }},
			{"second_prio", second[0], 3, 5, nicTAG2, func(l *nicLayer, n uint64) { l.TCI[1] = uint16(n) << 13 }},
			{"second_cfi", second[0] + 3, 1, 1, nicTAG2, func(l *nicLayer, n uint64) { l.TCI[1] = uint16(n) << 12 }},
			{"second_vid", second[0] + 4, 12, 100, nicTAG2, func(l *nicLayer, n uint64) { l.TCI[1] = uint16(n) }},
			{"ip_protocol", base + 0x80, 8, 47, nicPROTO, func(l *nicLayer, n uint64) { l.Proto = uint8(n) }},
			{"ip_dscp", base + 0x88, 6, 46, nicIP, func(l *nicLayer, n uint64) { l.TOS = uint8(n) << 2 }},
			{"ip_ecn", base + 0x8e, 2, 1, nicIP, func(l *nicLayer, n uint64) { l.TOS = uint8(n) }},
			{"frag", base + 0x92, 1, 1, nicIP, func(l *nicLayer, n uint64) { l.Frag = uint8(n) }},
			{"tcp_flags", base + 0x97, 9, 0x112, nicTCP | nicTCPFLAGS, func(l *nicLayer, n uint64) { l.TCPFlags = uint16(n) }},
			{"tcp_sport", base + 0xa0, 16, 80, nicTCP | nicPORTS, func(l *nicLayer, n uint64) { l.Sport = uint16(n) }},
			{"tcp_dport", base + 0xb0, 16, 80, nicTCP | nicPORTS, func(l *nicLayer, n uint64) { l.Dport = uint16(n) }},
			{"ttl_hoplimit", base + 0xd8, 8, 64, nicIP, func(l *nicLayer, n uint64) { l.TTL = uint8(n) }},
			{"udp_sport", base + 0xe0, 16, 53, nicUDP | nicPORTS, func(l *nicLayer, n uint64) { l.Sport = uint16(n) }},
			{"udp_dport", base + 0xf0, 16, 53, nicUDP | nicPORTS, func(l *nicLayer, n uint64) { l.Dport = uint16(n) }},
			{"cvlan_tag", base + 0x90, 1, 1, nicCVLAN, func(*nicLayer, uint64) {}},
			{"svlan_tag", base + 0x91, 1, 1, nicSVLAN, func(*nicLayer, uint64) {}},
			{"second_cvlan_tag", second[1], 1, 1, nicCVLAN2, func(*nicLayer, uint64) {}},
			{"second_svlan_tag", second[2], 1, 1, nicSVLAN2, func(*nicLayer, uint64) {}},
		} {
			fields = append(fields, field{name + f.name, f.bit, f.width, f.value, func(v, m *nicKey) {
				f.put(layer(of(v), f.present), f.value)
				f.put(layer(of(m), f.present), 1<<f.width-1)
			}})
		}
		for version, bit := range map[uint64]uint32{4: nicIPV4, 6: nicIPV6} {
			fields = append(fields, field{name + "ip_version", base + 0x93, 4, version, func(v, m *nicKey) {
				layer(of(v), bit)
				layer(of(m), bit)
			}})
		}
	}
	for _, f := range fields {
		var mask, value prm
		var want nicMatch
		mask.set(f.bit, f.width, 1<<f.width-1)
		value.set(f.bit, f.width, f.value)
		f.want(&want.Value, &want.Mask)
		d.must("mask %d %x", 1<<(f.bit/512), mask[:])
		got, _, errno := d.matchPRM(&mask, &value)
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(nicLayer{}, nicKey{})); diff != "" || errno != 0 {
			t.Errorf("%s: %v (-want +got):\n%s", f.name, errno, diff)
		}
	}
}

func be48(to *[6]byte, n uint64) {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], n)
	copy(to[:], b[2:])
}

// IPv4 addresses are in the last 4 bytes.
func TestMLX5MatchReadsAddressesByIPVersion(t *testing.T) {
	d := startNIC(t, mlx5Program(t), nil)
	for _, c := range []struct {
		name   string
		family func(mask, value *prm)
		want   [16]byte
		errno  syscall.Errno
	}{
		{"ip_version 4", func(m, v *prm) { m.set(0x93, 4, 15); v.set(0x93, 4, 4) }, [16]byte{192, 0, 2, 1}, 0},
		{"ethertype 0x0800", func(m, v *prm) { m.set(0x30, 16, 0xffff); v.set(0x30, 16, 0x0800) }, [16]byte{192, 0, 2, 1}, 0},
		{"ip_version 6", func(m, v *prm) { m.set(0x93, 4, 15); v.set(0x93, 4, 6) }, [16]byte{12: 192, 0, 2, 1}, 0},
		{"no family", func(m, v *prm) {}, [16]byte{}, syscall.EINVAL},
		{"a part of the version", func(m, v *prm) { m.set(0x93, 4, 4); v.set(0x93, 4, 4) }, [16]byte{}, syscall.EINVAL},
		{"version 5", func(m, v *prm) { m.set(0x93, 4, 15); v.set(0x93, 4, 5) }, [16]byte{}, syscall.EINVAL},
		{"IPv4 in the first bytes", func(m, v *prm) {
			m.set(0x93, 4, 15).set(0x180, 32, 0xffffffff)
			v.set(0x93, 4, 4)
		}, [16]byte{}, syscall.EINVAL},
	} {
		var mask, value prm
		c.family(&mask, &value)
		mask.set(0x180+96, 32, 0xffffffff)
		value.set(0x180+96, 32, 0xc0000201)
		if got, _, errno := d.matchPRM(&mask, &value); errno != c.errno || errno == 0 && got.Value.Outer.Dst != c.want {
			t.Errorf("%s: %v %v, want %v %v", c.name, got.Value.Outer.Dst, errno, c.want, c.errno)
		}
	}
}

// It also refuses sections not named by the criteria, and values that no packet can have.
func TestMLX5MatchRefusesUnknownBits(t *testing.T) {
	d := startNIC(t, mlx5Program(t), nil)
	reserved := map[int]bool{}
	for _, r := range [][2]int{ // first bit and length
		{outer + 0xc0, 24}, {inner + 0xc0, 24}, {misc + 0x01, 1}, {misc + 0x04, 28}, {misc + 0x20, 32}, {misc + 0x64, 12},
		{misc + 0xb8, 8}, {misc + 0xc0, 44}, {misc + 0x100, 12}, {misc + 0x120, 64}, {misc + 0x1a0, 96},
		{misc2 + 0x80, 384}, {misc3, 256}, {misc3 + 0x120, 224}, {misc4, 3 * 512},
	} {
		for bit := range r[1] {
			reserved[r[0]+bit] = true
		}
	}
	for bit := range 8 * len(prm{}) {
		var mask prm
		mask.set(bit, 1, 1)
		_, errno := d.ask("mask %d %x", 0xff, mask[:])
		if refused := errno == syscall.EINVAL; refused != reserved[bit] {
			t.Errorf("bit %#x of section %d: refused %t, want %t", bit%512, bit/512, refused, reserved[bit])
		}
	}
	var mask prm
	mask.set(inner, 48, 1)
	if _, errno := d.ask("mask %d %x", 1, mask[:]); errno != syscall.EINVAL {
		t.Errorf("inner headers without their criteria: %v", errno)
	}
	for name, bits := range map[string][2]int{
		"TCP and UDP":       {0xa0, 0xe0},
		"both kinds of tag": {0x90, 0x91},
		"VXLAN in GRE":      {misc + 0x70, misc + 0xa0},
		"two of ICMP":       {misc3 + 0x100, misc3 + 0x110},
	} {
		var mask prm
		mask.set(bits[0], 1, 1).set(bits[1], 1, 1)
		if _, _, errno := d.matchPRM(&mask, &mask); errno != syscall.EINVAL {
			t.Errorf("%s at once: %v", name, errno)
		}
	}
	var value prm
	value.set(0x80, 8, 6)
	if _, _, errno := d.matchPRM(new(prm), &value); errno != syscall.EINVAL {
		t.Errorf("a value outside its mask: %v", errno)
	}
}

// As in mlx5_ib, flows only to multicast addresses come behind all priorities.
func TestMLX5MulticastFlowsComeLast(t *testing.T) {
	d := startNIC(t, mlx5Program(t), nil)
	for name, c := range map[string]struct {
		mask, value uint64 // of dmac
		want        bool
	}{
		"a multicast address":         {0xffffffffffff, 0x01005e000001, true},
		"the multicast bit":           {0x010000000000, 0x010000000000, true},
		"not the bit":                 {0x010000000000, 0, false},
		"a unicast address":           {0xffffffffffff, 0x02005e000001, false},
		"a mask that leaves it aside": {0x00ffffffffff, 0x00005e000001, false},
	} {
		var mask, value prm
		mask.set(0x40, 48, c.mask)
		value.set(0x40, 48, c.value)
		if _, got, errno := d.matchPRM(&mask, &value); got != c.want || errno != 0 {
			t.Errorf("%s: %t %v, want %t", name, got, errno, c.want)
		}
	}
}

// The noise is seeded, and sanitizers watch the reader.
func TestMLX5MatchReaderReturnsForNoise(t *testing.T) {
	d := startNIC(t, mlx5Program(t), nil)
	rng := seed.Rand(t)
	taken := 0
	for range 3000 {
		var mask, value prm
		for range 1 + rng.IntN(12) {
			bit := rng.IntN(5 * 512)
			mask.set(bit, 1, 1)
			value.set(bit, 1, uint64(rng.IntN(2)))
		}
		words, errno := d.ask("match %x %x", mask[:], value[:])
		if errno == 0 && strings.Count(words[2], "0") < len(words[2]) {
			taken++
		}
	}
	if taken < 100 {
		t.Errorf("%d of 3000 were taken: too little was read", taken)
	}
}
