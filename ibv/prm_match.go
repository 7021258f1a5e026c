package ibv

import (
	"bytes"
	"fmt"
)

// MatchParam is struct mlx5_ifc_fte_match_param_bits of the PRM: the fields compared by a [Matcher]. The
// matcher has one as its mask, and each flow has one as its value. Numbers are in host order. A field of zero
// in the mask is not compared.
type MatchParam struct {
	Outer MatchHeaders
	Misc  MatchMisc
	Inner MatchHeaders // of a tunnel
	Misc2 MatchMisc2
	Misc3 MatchMisc3
}

// MatchHeaders is struct mlx5_ifc_fte_match_set_lyr_2_4_bits: one level of headers, from Ethernet to the
// ports. To match ports or TCP flags, also match IPProtocol.
type MatchHeaders struct {
	SMAC       [6]byte
	DMAC       [6]byte
	EtherType  uint16 // behind the first tag
	FirstPrio  uint8  // of the first tag: 3 bits
	FirstCFI   uint8  // 1 bit
	FirstVID   uint16 // 12 bits
	IPProtocol uint8  // behind the extension headers
	DSCP       uint8  // 6 bits
	ECN        uint8  // 2 bits
	CVLANTag   uint8  // 1: the first tag is a C-tag (0x8100)
	SVLANTag   uint8  // 1: the first tag is an S-tag (0x88a8)
	Frag       uint8  // 1: a fragment of an IP packet
	IPVersion  uint8  // 4 or 6
	TCPFlags   uint16 // 9 bits
	TCPSPort   uint16
	TCPDPort   uint16
	TTL        uint8 // or hop limit
	UDPSPort   uint16
	UDPDPort   uint16
	SrcIP      [16]byte // IPv4 in the last four bytes
	DstIP      [16]byte
}

func (h *MatchHeaders) prm(c *prmCodec) {
	octets(c, "smac", 0x00, h.SMAC[:])
	field(c, "ethertype", 0x30, 0x10, &h.EtherType)
	octets(c, "dmac", 0x40, h.DMAC[:])
	field(c, "first_prio", 0x70, 0x03, &h.FirstPrio)
	field(c, "first_cfi", 0x73, 0x01, &h.FirstCFI)
	field(c, "first_vid", 0x74, 0x0c, &h.FirstVID)
	field(c, "ip_protocol", 0x80, 0x08, &h.IPProtocol)
	field(c, "ip_dscp", 0x88, 0x06, &h.DSCP)
	field(c, "ip_ecn", 0x8e, 0x02, &h.ECN)
	field(c, "cvlan_tag", 0x90, 0x01, &h.CVLANTag)
	field(c, "svlan_tag", 0x91, 0x01, &h.SVLANTag)
	field(c, "frag", 0x92, 0x01, &h.Frag)
	field(c, "ip_version", 0x93, 0x04, &h.IPVersion)
	field(c, "tcp_flags", 0x97, 0x09, &h.TCPFlags)
	field(c, "tcp_sport", 0xa0, 0x10, &h.TCPSPort)
	field(c, "tcp_dport", 0xb0, 0x10, &h.TCPDPort)
	field(c, "ip_ttl_hoplimit", 0xd8, 0x08, &h.TTL)
	field(c, "udp_sport", 0xe0, 0x10, &h.UDPSPort)
	field(c, "udp_dport", 0xf0, 0x10, &h.UDPDPort)
	octets(c, "src_ip", 0x100, h.SrcIP[:])
	octets(c, "dst_ip", 0x180, h.DstIP[:])
}

// MatchMisc is struct mlx5_ifc_fte_match_set_misc_bits without the fields of InfiniBand.
type MatchMisc struct {
	GRECPresent         uint8 // 1: the header has a checksum
	GREKPresent         uint8 // 1: the header has a key
	GRESPresent         uint8 // 1: the header has a sequence number
	OuterSecondPrio     uint8 // of the second tag: 3 bits
	OuterSecondCFI      uint8 // 1 bit
	OuterSecondVID      uint16
	InnerSecondPrio     uint8
	InnerSecondCFI      uint8
	InnerSecondVID      uint16
	OuterSecondCVLANTag uint8 // 1: the second tag is a C-tag (0x8100)
	InnerSecondCVLANTag uint8
	OuterSecondSVLANTag uint8 // 1: the second tag is an S-tag (0x88a8)
	InnerSecondSVLANTag uint8
	GREProtocol         uint16
	GREKey              uint32 // gre_key_h and gre_key_l
	VXLANVNI            uint32 // 24 bits
	OuterIPv6FlowLabel  uint32 // 20 bits
	InnerIPv6FlowLabel  uint32
	InnerESPSPI         uint32
	OuterESPSPI         uint32
}

func (m *MatchMisc) prm(c *prmCodec) {
	field(c, "gre_c_present", 0x00, 0x01, &m.GRECPresent)
	field(c, "gre_k_present", 0x02, 0x01, &m.GREKPresent)
	field(c, "gre_s_present", 0x03, 0x01, &m.GRESPresent)
	field(c, "outer_second_prio", 0x40, 0x03, &m.OuterSecondPrio)
	field(c, "outer_second_cfi", 0x43, 0x01, &m.OuterSecondCFI)
	field(c, "outer_second_vid", 0x44, 0x0c, &m.OuterSecondVID)
	field(c, "inner_second_prio", 0x50, 0x03, &m.InnerSecondPrio)
	field(c, "inner_second_cfi", 0x53, 0x01, &m.InnerSecondCFI)
	field(c, "inner_second_vid", 0x54, 0x0c, &m.InnerSecondVID)
	field(c, "outer_second_cvlan_tag", 0x60, 0x01, &m.OuterSecondCVLANTag)
	field(c, "inner_second_cvlan_tag", 0x61, 0x01, &m.InnerSecondCVLANTag)
	field(c, "outer_second_svlan_tag", 0x62, 0x01, &m.OuterSecondSVLANTag)
	field(c, "inner_second_svlan_tag", 0x63, 0x01, &m.InnerSecondSVLANTag)
	field(c, "gre_protocol", 0x70, 0x10, &m.GREProtocol)
	field(c, "gre_key", 0x80, 0x20, &m.GREKey)
	field(c, "vxlan_vni", 0xa0, 0x18, &m.VXLANVNI)
	field(c, "outer_ipv6_flow_label", 0xec, 0x14, &m.OuterIPv6FlowLabel)
	field(c, "inner_ipv6_flow_label", 0x10c, 0x14, &m.InnerIPv6FlowLabel)
	field(c, "inner_esp_spi", 0x160, 0x20, &m.InnerESPSPI)
	field(c, "outer_esp_spi", 0x180, 0x20, &m.OuterESPSPI)
}

// MatchMisc2 is the MPLS part of struct mlx5_ifc_fte_match_set_misc2_bits. A field is a whole label stack
// entry: label 20 bits, EXP 3, bottom of stack 1, TTL 8.
type MatchMisc2 struct {
	OuterFirstMPLS        uint32
	InnerFirstMPLS        uint32
	OuterFirstMPLSOverGRE uint32
	OuterFirstMPLSOverUDP uint32
}

func (m *MatchMisc2) prm(c *prmCodec) {
	field(c, "outer_first_mpls", 0x00, 0x20, &m.OuterFirstMPLS)
	field(c, "inner_first_mpls", 0x20, 0x20, &m.InnerFirstMPLS)
	field(c, "outer_first_mpls_over_gre", 0x40, 0x20, &m.OuterFirstMPLSOverGRE)
	field(c, "outer_first_mpls_over_udp", 0x60, 0x20, &m.OuterFirstMPLSOverUDP)
}

// MatchMisc3 is the ICMP part of struct mlx5_ifc_fte_match_set_misc3_bits. A device compares it only if its
// flex parser is set up for ICMP: see [DevX.MatchesICMP].
type MatchMisc3 struct {
	ICMPHeaderData   uint32 // the four bytes behind the checksum
	ICMPv6HeaderData uint32
	ICMPType         uint8
	ICMPCode         uint8
	ICMPv6Type       uint8
	ICMPv6Code       uint8
}

func (m *MatchMisc3) prm(c *prmCodec) {
	field(c, "icmp_header_data", 0xc0, 0x20, &m.ICMPHeaderData)
	field(c, "icmpv6_header_data", 0xe0, 0x20, &m.ICMPv6HeaderData)
	field(c, "icmp_type", 0x100, 0x08, &m.ICMPType)
	field(c, "icmp_code", 0x108, 0x08, &m.ICMPCode)
	field(c, "icmpv6_type", 0x110, 0x08, &m.ICMPv6Type)
	field(c, "icmpv6_code", 0x118, 0x08, &m.ICMPv6Code)
}

// matchSection is the size of every section of fte_match_param, in bytes.
const matchSection = 64

// sections lists the parts in the order of fte_match_param. The index of a section is also its bit in
// match_criteria_enable (MLX5_MATCH_OUTER_HEADERS and so on).
func (m *MatchParam) sections() []prmStruct {
	return []prmStruct{&m.Outer, &m.Misc, &m.Inner, &m.Misc2, &m.Misc3}
}

// encode returns the bytes of all sections.
func (m *MatchParam) encode() (b []byte, err error) {
	names := [...]string{"outer headers", "misc", "inner headers", "misc_2", "misc_3"}
	for i, s := range m.sections() {
		b, err = encodePRM(b, matchSection, s)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", names[i], err)
		}
	}
	return b, nil
}

// encodeMask encodes the mask up to its last used section, and returns the criteria of the used sections. A
// kernel refuses sections unknown to it, so we cut off empty ones. An empty mask, which matches every packet,
// still has one section.
func (m *MatchParam) encodeMask() (mask []byte, criteria uint8, err error) {
	mask, err = m.encode()
	if err != nil {
		return nil, 0, err
	}

	end := matchSection
	unused := make([]byte, matchSection)
	for i := range m.sections() {
		begin := i * matchSection
		if bytes.Equal(mask[begin:begin+matchSection], unused) {
			continue
		}
		criteria |= 1 << i
		end = begin + matchSection
	}
	return mask[:end], criteria, nil
}

// encodeValue encodes the value at the length of the mask. It refuses a bit outside the mask: firmware would
// ignore it, and the caller must have meant something else.
func (m *MatchParam) encodeValue(mask []byte) ([]byte, error) {
	b, err := m.encode()
	if err != nil {
		return nil, err
	}

	for i, v := range b {
		var allowed byte // 0 beyond the end of the mask
		if i < len(mask) {
			allowed = mask[i]
		}
		if v&^allowed != 0 {
			return nil, fmt.Errorf("byte %#x of the match value: %#02x has bits that the matcher's mask does not have", i, v)
		}
	}
	return b[:len(mask)], nil
}
