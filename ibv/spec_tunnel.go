package ibv

import "encoding/binary"

// TunnelFilter is struct ibv_flow_tunnel_filter.
type TunnelFilter struct {
	TunnelID uint32 // the VNI: 24 bits
}

func (f TunnelFilter) appendFilter(b []byte) []byte {
	return binary.BigEndian.AppendUint32(b, f.TunnelID)
}

// VXLANSpec matches a VXLAN header (IBV_FLOW_SPEC_VXLAN_TUNNEL). The header is the tunnel itself, so there is no
// Inner.
type VXLANSpec struct {
	Val, Mask TunnelFilter
}

func (s VXLANSpec) specType() specType { return specVXLANTunnel }
func (s VXLANSpec) appendSpec(b []byte) ([]byte, error) {
	return appendMatch(b, s.specType(), filterShape{align: 4, size: 4}, s.Val, s.Mask), nil
}

// GREFilter is struct ibv_flow_gre_filter.
type GREFilter struct {
	CKSRes0Ver uint16 // first 16 bits of the header; mlx5 does not match them
	Protocol   uint16 // EtherType of the inner packet
	Key        uint32
}

func (f GREFilter) appendFilter(b []byte) []byte {
	b = binary.BigEndian.AppendUint16(b, f.CKSRes0Ver)
	b = binary.BigEndian.AppendUint16(b, f.Protocol)
	return binary.BigEndian.AppendUint32(b, f.Key)
}

// GRESpec matches a GRE header.
type GRESpec struct {
	Inner     bool
	Val, Mask GREFilter
}

func (s GRESpec) specType() specType { return specGRE.inner(s.Inner) }
func (s GRESpec) appendSpec(b []byte) ([]byte, error) {
	return appendMatch(b, s.specType(), filterShape{align: 4, size: 8}, s.Val, s.Mask), nil
}

// MPLSFilter is struct ibv_flow_mpls_filter.
type MPLSFilter struct {
	Label uint32 // the whole entry: label 20 bits, traffic class 3, bottom of stack 1, TTL 8
}

func (f MPLSFilter) appendFilter(b []byte) []byte {
	return binary.BigEndian.AppendUint32(b, f.Label)
}

// MPLSSpec matches the first MPLS label stack entry behind the header of the previous spec.
type MPLSSpec struct {
	Inner     bool
	Val, Mask MPLSFilter
}

func (s MPLSSpec) specType() specType { return specMPLS.inner(s.Inner) }
func (s MPLSSpec) appendSpec(b []byte) ([]byte, error) {
	return appendMatch(b, s.specType(), filterShape{align: 4, size: 4}, s.Val, s.Mask), nil
}
