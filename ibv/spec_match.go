package ibv

import "encoding/binary"

// EthFilter is struct ibv_flow_eth_filter.
type EthFilter struct {
	DstMAC    [6]byte
	SrcMAC    [6]byte
	EtherType uint16 // if VLANTag is matched: that of the header behind the tag
	VLANTag   uint16 // as in 802.1Q: priority 3 bits, CFI 1, VLAN id 12
}

func (f EthFilter) appendFilter(b []byte) []byte {
	b = append(append(b, f.DstMAC[:]...), f.SrcMAC[:]...)
	b = binary.BigEndian.AppendUint16(b, f.EtherType)
	return binary.BigEndian.AppendUint16(b, f.VLANTag)
}

// EthSpec matches an Ethernet header. On mlx5, any bit in Mask.VLANTag also requires a C-tag. If
// Mask.VLANTag is 0, tagged and untagged packets match.
type EthSpec struct {
	Inner     bool
	Val, Mask EthFilter
}

func (s EthSpec) specType() specType { return specEth.inner(s.Inner) }
func (s EthSpec) appendSpec(b []byte) ([]byte, error) {
	return appendMatch(b, s.specType(), filterShape{align: 2, size: 16}, s.Val, s.Mask), nil
}

// IPv4Filter is struct ibv_flow_ipv4_filter.
type IPv4Filter struct {
	SrcIP, DstIP [4]byte
}

func (f IPv4Filter) appendFilter(b []byte) []byte {
	return append(append(b, f.SrcIP[:]...), f.DstIP[:]...)
}

// IPv4Spec matches packets with an IPv4 header, and its addresses.
type IPv4Spec struct {
	Inner     bool
	Val, Mask IPv4Filter
}

func (s IPv4Spec) specType() specType { return specIPv4.inner(s.Inner) }
func (s IPv4Spec) appendSpec(b []byte) ([]byte, error) {
	return appendMatch(b, s.specType(), filterShape{align: 4, size: 8}, s.Val, s.Mask), nil
}

// IPv4ExtFilter is struct ibv_flow_ipv4_ext_filter.
type IPv4ExtFilter struct {
	SrcIP, DstIP [4]byte
	Proto        uint8
	TOS          uint8 // DSCP and ECN
	TTL          uint8 // no upstream driver matches it
	Flags        uint8 // no upstream driver matches them
}

func (f IPv4ExtFilter) appendFilter(b []byte) []byte {
	return append(IPv4Filter{f.SrcIP, f.DstIP}.appendFilter(b), f.Proto, f.TOS, f.TTL, f.Flags)
}

// IPv4ExtSpec matches packets with an IPv4 header, and more of its fields than IPv4Spec.
type IPv4ExtSpec struct {
	Inner     bool
	Val, Mask IPv4ExtFilter
}

func (s IPv4ExtSpec) specType() specType { return specIPv4Ext.inner(s.Inner) }
func (s IPv4ExtSpec) appendSpec(b []byte) ([]byte, error) {
	return appendMatch(b, s.specType(), filterShape{align: 4, size: 12}, s.Val, s.Mask), nil
}

// IPv6Filter is struct ibv_flow_ipv6_filter.
type IPv6Filter struct {
	SrcIP, DstIP [16]byte
	FlowLabel    uint32 // 20 bits
	NextHdr      uint8  // mlx5 instead matches the protocol behind the extension headers
	TrafficClass uint8
	HopLimit     uint8 // no upstream driver matches it
}

func (f IPv6Filter) appendFilter(b []byte) []byte {
	b = append(append(b, f.SrcIP[:]...), f.DstIP[:]...)
	b = binary.BigEndian.AppendUint32(b, f.FlowLabel)
	return append(b, f.NextHdr, f.TrafficClass, f.HopLimit)
}

// IPv6Spec matches packets with an IPv6 header, and its fields.
type IPv6Spec struct {
	Inner     bool
	Val, Mask IPv6Filter
}

func (s IPv6Spec) specType() specType { return specIPv6.inner(s.Inner) }
func (s IPv6Spec) appendSpec(b []byte) ([]byte, error) {
	return appendMatch(b, s.specType(), filterShape{align: 4, size: 40}, s.Val, s.Mask), nil
}

// ESPFilter is struct ibv_flow_esp_filter.
type ESPFilter struct {
	SPI uint32
	Seq uint32 // no upstream driver matches it
}

func (f ESPFilter) appendFilter(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, f.SPI)
	return binary.BigEndian.AppendUint32(b, f.Seq)
}

// ESPSpec matches an ESP header.
type ESPSpec struct {
	Inner     bool
	Val, Mask ESPFilter
}

func (s ESPSpec) specType() specType { return specESP.inner(s.Inner) }
func (s ESPSpec) appendSpec(b []byte) ([]byte, error) {
	return appendMatch(b, s.specType(), filterShape{align: 4, size: 8}, s.Val, s.Mask), nil
}

// TCPUDPFilter is struct ibv_flow_tcp_udp_filter.
type TCPUDPFilter struct {
	DstPort uint16
	SrcPort uint16
}

func (f TCPUDPFilter) appendFilter(b []byte) []byte {
	b = binary.BigEndian.AppendUint16(b, f.DstPort)
	return binary.BigEndian.AppendUint16(b, f.SrcPort)
}

// tcpUDPShape is the shape of TCPSpec and UDPSpec.
func tcpUDPShape() filterShape { return filterShape{align: 2, size: 4} }

// TCPSpec matches packets with a TCP header, and its ports.
type TCPSpec struct {
	Inner     bool
	Val, Mask TCPUDPFilter
}

func (s TCPSpec) specType() specType { return specTCP.inner(s.Inner) }
func (s TCPSpec) appendSpec(b []byte) ([]byte, error) {
	return appendMatch(b, s.specType(), tcpUDPShape(), s.Val, s.Mask), nil
}

// UDPSpec matches packets with a UDP header, and its ports.
type UDPSpec struct {
	Inner     bool
	Val, Mask TCPUDPFilter
}

func (s UDPSpec) specType() specType { return specUDP.inner(s.Inner) }
func (s UDPSpec) appendSpec(b []byte) ([]byte, error) {
	return appendMatch(b, s.specType(), tcpUDPShape(), s.Val, s.Mask), nil
}
