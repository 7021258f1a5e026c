package ibv

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

// blobs are specs, each with the initialiser of the equal C struct.
var blobs = []struct {
	spec Spec
	c    string
}{
	{EthSpec{
		Val:  EthFilter{[6]byte{1, 2, 3, 4, 5, 6}, [6]byte{7, 8, 9, 10, 11, 12}, 0x86dd, 0xa123},
		Mask: EthFilter{[6]byte{0xff}, [6]byte{5: 0xff}, 0xffff, 0x0fff},
	}, `struct ibv_flow_spec_eth {IBV_FLOW_SPEC_ETH, sizeof(struct ibv_flow_spec_eth),
		{{1, 2, 3, 4, 5, 6}, {7, 8, 9, 10, 11, 12}, BE16(0x86dd), BE16(0xa123)}, {{0xff}, {[5] = 0xff}, BE16(0xffff), BE16(0x0fff)}}`},
	{EthSpec{Inner: true}, `struct ibv_flow_spec_eth {IBV_FLOW_SPEC_ETH | IBV_FLOW_SPEC_INNER, sizeof(struct ibv_flow_spec_eth)}`},
	{IPv4Spec{
		Val: IPv4Filter{[4]byte{10, 0, 0, 1}, [4]byte{10, 0, 0, 2}}, Mask: IPv4Filter{[4]byte{255, 255, 255, 0}, [4]byte{255}},
	}, `struct ibv_flow_spec_ipv4 {IBV_FLOW_SPEC_IPV4, sizeof(struct ibv_flow_spec_ipv4),
		{BE32(0x0a000001), BE32(0x0a000002)}, {BE32(0xffffff00), BE32(0xff000000)}}`},
	{IPv4ExtSpec{
		Val:  IPv4ExtFilter{[4]byte{10, 0, 0, 1}, [4]byte{10, 0, 0, 2}, 17, 0xb8, 64, 2},
		Mask: IPv4ExtFilter{[4]byte{255}, [4]byte{3: 255}, 255, 0xfc, 1, 3},
	}, `struct ibv_flow_spec_ipv4_ext {IBV_FLOW_SPEC_IPV4_EXT, sizeof(struct ibv_flow_spec_ipv4_ext),
		{.src_ip = BE32(0x0a000001), .dst_ip = BE32(0x0a000002), .proto = 17, .tos = 0xb8, .ttl = 64, .flags = 2},
		{.src_ip = BE32(0xff000000), .dst_ip = BE32(0xff), .proto = 255, .tos = 0xfc, .ttl = 1, .flags = 3}}`},
	{IPv6Spec{
		Inner: true,
		Val:   IPv6Filter{[16]byte{0x20, 1, 15: 1}, [16]byte{0x20, 2, 15: 2}, 0xabcde, 6, 0x20, 3},
		Mask:  IPv6Filter{[16]byte{0xff}, [16]byte{15: 0xff}, 0xfffff, 0xff, 0xfe, 0x0f},
	}, `struct ibv_flow_spec_ipv6 {IBV_FLOW_SPEC_IPV6 | IBV_FLOW_SPEC_INNER, sizeof(struct ibv_flow_spec_ipv6),
		{.src_ip = {0x20, 1, [15] = 1}, .dst_ip = {0x20, 2, [15] = 2}, .flow_label = BE32(0xabcde), .next_hdr = 6, .traffic_class = 0x20, .hop_limit = 3},
		{.src_ip = {0xff}, .dst_ip = {[15] = 0xff}, .flow_label = BE32(0xfffff), .next_hdr = 0xff, .traffic_class = 0xfe, .hop_limit = 0x0f}}`},
	{ESPSpec{Val: ESPFilter{0x01020304, 5}, Mask: ESPFilter{0xffffffff, 6}},
		`struct ibv_flow_spec_esp {IBV_FLOW_SPEC_ESP, sizeof(struct ibv_flow_spec_esp),
		{.spi = BE32(0x01020304), .seq = BE32(5)}, {.spi = BE32(0xffffffff), .seq = BE32(6)}}`},
	{TCPSpec{Val: TCPUDPFilter{DstPort: 80, SrcPort: 1024}, Mask: TCPUDPFilter{DstPort: 0xffff, SrcPort: 0xfc00}},
		`struct ibv_flow_spec_tcp_udp {IBV_FLOW_SPEC_TCP, sizeof(struct ibv_flow_spec_tcp_udp),
		{.dst_port = BE16(80), .src_port = BE16(1024)}, {.dst_port = BE16(0xffff), .src_port = BE16(0xfc00)}}`},
	{UDPSpec{Inner: true, Val: TCPUDPFilter{DstPort: 53}, Mask: TCPUDPFilter{DstPort: 0xffff}},
		`struct ibv_flow_spec_tcp_udp {IBV_FLOW_SPEC_UDP | IBV_FLOW_SPEC_INNER, sizeof(struct ibv_flow_spec_tcp_udp),
		{.dst_port = BE16(53)}, {.dst_port = BE16(0xffff)}}`},
	{VXLANSpec{Val: TunnelFilter{0x123456}, Mask: TunnelFilter{0xffffff}},
		`struct ibv_flow_spec_tunnel {IBV_FLOW_SPEC_VXLAN_TUNNEL, sizeof(struct ibv_flow_spec_tunnel), {BE32(0x123456)}, {BE32(0xffffff)}}`},
	{GRESpec{Val: GREFilter{0x2000, 0x0800, 7}, Mask: GREFilter{0xb000, 0xffff, 0xffffffff}},
		`struct ibv_flow_spec_gre {IBV_FLOW_SPEC_GRE, sizeof(struct ibv_flow_spec_gre),
		{.c_ks_res0_ver = BE16(0x2000), .protocol = BE16(0x0800), .key = BE32(7)}, {.c_ks_res0_ver = BE16(0xb000), .protocol = BE16(0xffff), .key = BE32(0xffffffff)}}`},
	{MPLSSpec{Val: MPLSFilter{0x12345140}, Mask: MPLSFilter{0xfffff000}},
		`struct ibv_flow_spec_mpls {IBV_FLOW_SPEC_MPLS, sizeof(struct ibv_flow_spec_mpls), {BE32(0x12345140)}, {BE32(0xfffff000)}}`},
	{TagSpec{0x123456}, `struct ibv_flow_spec_action_tag {IBV_FLOW_SPEC_ACTION_TAG, sizeof(struct ibv_flow_spec_action_tag), 0x123456}`},
	{DropSpec{}, `struct ibv_flow_spec_action_drop {IBV_FLOW_SPEC_ACTION_DROP, sizeof(struct ibv_flow_spec_action_drop)}`},
	{CountSpec{opened(0x1122334455667788)}, `struct ibv_flow_spec_counter_action {IBV_FLOW_SPEC_ACTION_COUNT, sizeof(struct ibv_flow_spec_counter_action),
		(struct ibv_counters *)0x1122334455667788}`},
}

// A flow with every type of spec is compared byte by byte with the packed struct of a C program.
// The specs in front of a member leave it unaligned, so alignment is covered too.
func TestABIFlowBlobEqualsTheStructsOfC(t *testing.T) {
	attr := FlowAttr{Type: FlowAttrNormal, Flags: FlowDontTrap | FlowEgress, Priority: 0x0102, Port: 3}
	var members, values strings.Builder
	seen := make(map[specType]bool)
	for i, b := range blobs {
		attr.Specs = append(attr.Specs, b.spec)
		seen[b.spec.specType()&^specInner] = true
		typ, value, _ := strings.Cut(b.c, " {")
		fmt.Fprintf(&members, "\t%s s%d;\n", typ, i)
		fmt.Fprintf(&values, "\t{%s,\n", value)
	}
	for typ := range blobLayout {
		if !seen[typ] {
			t.Errorf("no blob with %v", typ)
		}
	}
	got, err := appendFlow(nil, attr)
	if err != nil {
		t.Fatal(err)
	}
	source := fmt.Sprintf(`%s
#define BE16(x) __builtin_bswap16(x)
#define BE32(x) __builtin_bswap32(x)
struct __attribute__((packed)) flow {
	struct ibv_flow_attr attr;
%s};
struct flow flow = {
	{.type = IBV_FLOW_ATTR_NORMAL, .size = sizeof(struct flow), .priority = 0x0102, .num_of_specs = %d, .port = 3,
		.flags = IBV_FLOW_ATTR_FLAGS_DONT_TRAP | IBV_FLOW_ATTR_FLAGS_EGRESS},
%s};
`, theirHeaders, &members, len(blobs), &values)
	eachTarget(t, func(t *testing.T, cc abiTarget) {
		if want := cc.data(t, source, "flow"); !bytes.Equal(got, want) {
			at := 0
			for at < min(len(got), len(want)) && got[at] == want[at] {
				at++
			}
			t.Errorf("%d bytes, want %d; they differ from byte %d on:\ngot  % x\nwant % x", len(got), len(want), at, got[at:], want[at:])
		}
	})
}
