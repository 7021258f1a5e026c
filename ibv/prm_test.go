package ibv

import (
	"bytes"
	"encoding/hex"
	"errors"
	"maps"
	"math/bits"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/flowtally/flowtally/ibv/flexio"
)

// Layouts from the field lists of rdma-core's tests/mlx5_prm_structs.py (691953d8): names and
// widths in order, - for an omitted field, so a position is the sum of the widths before it. The
// codec was written from the positions in providers/mlx5/mlx5_ifc.h and DPDK's
// drivers/common/mlx5/mlx5_prm.h instead.
const (
	lyr24 = `smac 48 ethertype 16 dmac 48 first_prio 3 first_cfi 1 first_vid 12 ip_protocol 8 ip_dscp 6 ip_ecn 2
		cvlan_tag 1 svlan_tag 1 frag 1 ip_version 4 tcp_flags 9 tcp_sport 16 tcp_dport 16 - 16 - 4 - 1 - 1 - 1 - 1
		ip_ttl_hoplimit 8 udp_sport 16 udp_dport 16 src_ip 128 dst_ip 128`
	misc = `gre_c_present 1 - 1 gre_k_present 1 gre_s_present 1 - 4 - 24 - 16 - 16
		outer_second_prio 3 outer_second_cfi 1 outer_second_vid 12 inner_second_prio 3 inner_second_cfi 1 inner_second_vid 12
		outer_second_cvlan_tag 1 inner_second_cvlan_tag 1 outer_second_svlan_tag 1 inner_second_svlan_tag 1 - 1 - 11
		gre_protocol 16 gre_key 32 vxlan_vni 24 - 8 - 24 - 7 - 1 - 12 outer_ipv6_flow_label 20 - 12 inner_ipv6_flow_label 20
		- 10 - 6 - 16 - 8 - 24 inner_esp_spi 32 outer_esp_spi 32 - 96`
	misc2 = `outer_first_mpls 32 inner_first_mpls 32 outer_first_mpls_over_gre 32 outer_first_mpls_over_udp 32
		- 32 - 32 - 32 - 32 - 32 - 32 - 32 - 32 - 32 - 32 - 64`
	misc3 = `- 32 - 32 - 32 - 32 - 8 - 24 - 8 - 8 - 16 icmp_header_data 32 icmpv6_header_data 32
		icmp_type 8 icmp_code 8 icmpv6_type 8 icmpv6_code 8 - 32 - 32 - 8 - 5 - 3 - 16 - 32 - 32 - 32 - 32`
	allocIn      = `opcode 16 - 16 - 16 op_mod 16 - 32 - 19 flow_counter_bulk_log_size 5 flow_counter_bulk 8`
	allocOut     = `status 8 - 24 syndrome 32 flow_counter_id 32 - 32`
	queryIn      = `opcode 16 - 16 - 16 op_mod 16 - 32 - 32 - 64 clear 1 - 1 num_of_counters 30 flow_counter_id 32`
	capIn        = `opcode 16 - 16 - 16 op_mod 16 - 1 - 15 - 16 - 32`
	traffic      = `packets 64 octets 64`
	createCQList = `opcode 16 - 32 op_mod 16 - 70 dbr_umem_valid 1 - 4 cc 1 - 2 oi 1 - 17 dbr_umem_id 32 - 35 log_cq_size 5
		uar_page 24 - 56 c_eqn 8 - 256 dbr_addr 64 cq_umem_offset 64 cq_umem_id 32 cq_umem_valid 1 - 1439`
	createQPList = `opcode 16 - 32 op_mod 16 - 147 pm_state 2 - 19 pd 24 - 9 log_rq_size 4 - 4 log_sq_size 4 - 3 ts_format 2 - 14
		uar_page 24 - 872 cqn_snd 24 - 232 cqn_rcv 24 dbr_addr 64 - 323 dbr_umem_valid 1 - 156 dbr_umem_id 32 - 64
		wq_umem_id 32 wq_umem_valid 1 - 31`
	rst2InitIn = `opcode 16 - 32 op_mod 16 - 8 qpn 24 - 115 pm_state 2 - 187 pkey_index 16 - 264 vhca_port_num 8 - 672 rre 1 rwe
		1 - 814`
	init2RTRIn = `opcode 16 - 32 op_mod 16 - 8 qpn 24 - 160 mtu 3 log_msg_max 5 - 96 remote_qpn 24 - 40 grh 1 mlid 7 rlid 16 - 8
		src_addr_index 8 - 4 stat_rate 4 hop_limit 8 - 4 tclass 8 flow_label 20 rgid_rip 128 - 16 udp_sport 16 - 1
		eth_prio 3 sl 4 vhca_port_num 8 rmac 48 - 616 log_rra_max 3 - 24 min_rnr_nak 5 next_rcv_psn 24 - 768`
	rtr2RTSIn = `opcode 16 - 32 op_mod 16 - 8 qpn 24 - 352 ack_timeout 5 - 227 vhca_port_num 8 - 408 log_sra_max 3 - 2
		retry_count 3 rnr_retry 3 - 53 next_send_psn 24 - 992`
	queueOutList = `status 8 - 24 syndrome 32 - 8 number 24 - 32`
)

// columns turns a list into fields and its size in bytes.
func columns(t testing.TB, list string) (fields []prmField, size int) {
	t.Helper()
	words := strings.Fields(list)
	bit := 0
	for i := 0; i < len(words); i += 2 {
		width := 0
		for _, d := range words[i+1] {
			width = width*10 + int(d-'0')
		}
		if words[i] != "-" {
			fields = append(fields, prmField{words[i], bit, width})
		}
		bit += width
	}
	if bit%8 != 0 {
		t.Fatalf("the list %.20q ends within a byte: %d bits", list, bit)
	}
	return fields, bit / 8
}

func TestPRMFieldsLieWhereTheHeadersHaveThem(t *testing.T) {
	for _, c := range []struct {
		name, list string
		size       int
		s          prmStruct
	}{
		{"fte_match_set_lyr_2_4", lyr24, matchSection, &MatchHeaders{}},
		{"fte_match_set_misc", misc, matchSection, &MatchMisc{}},
		{"fte_match_set_misc2", misc2, matchSection, &MatchMisc2{}},
		{"fte_match_set_misc3", misc3, matchSection, &MatchMisc3{}},
		{"alloc_flow_counter_in", allocIn, prmInSize, &allocFlowCounterIn{}},
		{"alloc_flow_counter_out", allocOut, prmOutSize, &allocFlowCounterOut{}},
		{"query_flow_counter_in", queryIn, queryFlowCounterInSize, &queryFlowCounterIn{}},
		{"query_hca_cap_in", capIn, prmInSize, &queryHCACapIn{}},
		{"traffic_counter", traffic, trafficCounterSize, &FlowCount{}},
		{"create_qp_in", createQPList, createQPInSize, &createQPIn{}},
		{"rst2init_qp_in", rst2InitIn, modifyQPInSize, &modifyQPIn{opcode: opRst2InitQP}},
		{"init2rtr_qp_in", init2RTRIn, modifyQPInSize, &modifyQPIn{opcode: opInit2RTRQP}},
		{"rtr2rts_qp_in", rtr2RTSIn, modifyQPInSize, &modifyQPIn{opcode: opRTR2RTSQP}},
		{"create_cq_out", queueOutList, prmOutSize, &queueOut{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			want, size := columns(t, c.list)
			if size != c.size {
				t.Errorf("%d bytes, want %d", c.size, size)
			}
			got := prmCodec{mode: prmList}
			c.s.prm(&got)
			slices.SortFunc(got.list, func(a, b prmField) int { return a.bit - b.bit })
			if diff := cmp.Diff(want, got.list, cmp.AllowUnexported(prmField{})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// The two structures have thousands of bits, and the codec reads a few fields. The positions are
// the sums over CmdHcaCap and CmdHcaCap2 of the file named above. The first two also come from
// Linux's include/linux/mlx5/mlx5_ifc.h, and the third, with the bits of ICMP, from rdma-core's
// providers/mlx5/mlx5_ifc.h and DPDK's mlx5_prm.h.
func TestPRMCapabilitiesLieWhereTheHeadersHaveThem(t *testing.T) {
	b := make([]byte, 256)
	b[0x20/8] = 0x80
	b[0x310/8] = 0x1f
	b[0x540/8+2] = 0x03
	var general hcaCap
	if decodePRM(b, &general); !general.HCACap2 || general.FlowCounterBulkAlloc != 0x1f || general.FlexParserProtocols != flexICMP|flexICMPv6 {
		t.Errorf("general: %+v", general)
	}
	clear(b)
	b[0x253/8], b[0x25b/8] = 0x0f, 0x02
	var more hcaCap2Fields
	if decodePRM(b, &more); more.FlowCounterBulkLogMaxAlloc != 15 || more.FlowCounterBulkLogGranularity != 2 {
		t.Errorf("2: %+v", more)
	}
}

func TestPRMCommandsEncodeToTheirBytes(t *testing.T) {
	for _, c := range []struct {
		name string
		size int
		s    prmStruct
		want string
	}{
		{"one counter", prmInSize, &allocFlowCounterIn{}, "09390000 00000000 00000000 00000000"},
		{"a bulk of 512", prmInSize, &allocFlowCounterIn{Bulk: 4}, "09390000 00000000 00000000 00000004"},
		{"a bulk of 2^9", prmInSize, &allocFlowCounterIn{BulkLogSize: 9}, "09390000 00000000 00000000 00000900"},
		{"a query of 512", queryFlowCounterInSize, &queryFlowCounterIn{NumOfCounters: 512, FlowCounterID: 0x01020304},
			"093b0000 00000000 00000000 00000000 00000000 00000000 00000200 01020304"},
		{"a query that clears", queryFlowCounterInSize, &queryFlowCounterIn{Clear: true, FlowCounterID: 1},
			"093b0000 00000000 00000000 00000000 00000000 00000000 80000000 00000001"},
		{"general capabilities, current", prmInSize, &queryHCACapIn{hcaCapGeneral}, "01000000 00000001 00000000 00000000"},
		{"HCA_CAP_2, current", prmInSize, &queryHCACapIn{hcaCap2}, "01000000 00000041 00000000 00000000"},
	} {
		t.Run(c.name, func(t *testing.T) {
			want, err := hex.DecodeString(strings.ReplaceAll(c.want, " ", ""))
			if err != nil {
				t.Fatal(err)
			}
			got, err := encodePRM(nil, c.size, c.s)
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("got  %x (%v)\nwant %x", got, err, want)
			}
		})
	}
}

// anyMatch draws a match whose every field fits.
func anyMatch() *rapid.Generator[MatchParam] {
	return rapid.Custom(func(t *rapid.T) MatchParam {
		var m MatchParam
		for _, s := range m.sections() {
			list := prmCodec{mode: prmList}
			s.prm(&list)
			b := make([]byte, matchSection)
			for _, f := range list.list { // random bits in every field
				if !rapid.Bool().Draw(t, f.name) {
					continue
				}
				for i, bits := f.bit, rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "bits"); i < f.bit+f.width; i++ {
					b[i/8] |= bits[(i-f.bit)/8] >> ((i - f.bit) % 8) & 1 << (7 - i%8)
				}
			}
			decodePRM(b, s)
		}
		return m
	})
}

func TestMatchParamDecodesToItself(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := anyMatch().Draw(t, "match")
		b, err := want.encode()
		if err != nil {
			t.Fatal(err)
		}
		var got MatchParam
		for i, s := range got.sections() {
			decodePRM(b[i*matchSection:], s)
		}
		if got != want {
			t.Fatalf("got  %+v\nwant %+v", got, want)
		}
		mask, criteria, err := want.encodeMask()
		if err != nil {
			t.Fatal(err)
		}
		for i := range got.sections() { // the mask may cut off only empty sections, and the criteria must name the used ones
			var part []byte
			if at := i * matchSection; at < len(mask) {
				part = mask[at : at+matchSection]
			} else {
				part = b[at : at+matchSection]
				if len(bytes.Trim(part, "\x00")) > 0 {
					t.Fatalf("section %d is cut off: %x", i, part)
				}
			}
			if used := len(bytes.Trim(part, "\x00")) > 0; used != (criteria>>i&1 == 1) {
				t.Fatalf("criteria %#x, section %d: %x", criteria, i, part)
			}
		}
		if value, err := want.encodeValue(mask); err != nil || !bytes.Equal(value, mask) {
			t.Fatalf("the mask as a value: %x, %v", value, err)
		}
	})
}

// Whatever firmware sends, trafficCounter and the codec must agree.
func FuzzTrafficCounter(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x00\x00\x00\x00\x01\xff\xff\xff\xff\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < trafficCounterSize {
			return
		}
		var want FlowCount
		decodePRM(b, &want)
		if got := trafficCounter(b); got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	})
}

func TestMatchParamRefusesBitsOutsideFieldAndMask(t *testing.T) {
	for _, c := range []struct {
		name        string
		mask, value MatchParam
		want        string
	}{
		{"a VNI of 25 bits", MatchParam{Misc: MatchMisc{VXLANVNI: 1 << 24}}, MatchParam{}, "vxlan_vni"},
		{"a VLAN id of 13 bits", MatchParam{Inner: MatchHeaders{FirstVID: 0x1fff}}, MatchParam{}, "inner headers: first_vid"},
		{"a value outside the mask", MatchParam{Outer: MatchHeaders{IPProtocol: 0x0f}}, MatchParam{Outer: MatchHeaders{IPProtocol: 0x11}}, "byte 0x10"},
		{"a value in a section that is cut off", MatchParam{}, MatchParam{Misc3: MatchMisc3{ICMPType: 8}}, "byte 0x120"},
	} {
		t.Run(c.name, func(t *testing.T) {
			mask, _, err := c.mask.encodeMask()
			if err == nil {
				_, err = c.value.encodeValue(mask)
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want one about %q", err, c.want)
			}
		})
	}
}

func TestSmallestSufficientBulkIsAllocated(t *testing.T) {
	mask := counterCaps{bulkMask: 0x1f}            // 128 to 2048
	logs := counterCaps{bulkMask: 0x1f, maxLog: 9} // powers of two, up to 512
	for _, c := range []struct {
		name string
		caps counterCaps
		n    int
		want allocFlowCounterIn
		size int
	}{
		{"single", mask, 1, allocFlowCounterIn{}, 1},
		{"the smallest", mask, 2, allocFlowCounterIn{Bulk: 1}, 128},
		{"just that", mask, 128, allocFlowCounterIn{Bulk: 1}, 128},
		{"one more", mask, 129, allocFlowCounterIn{Bulk: 2}, 256},
		{"the largest", mask, 2048, allocFlowCounterIn{Bulk: 16}, 2048},
		{"a hole in the mask", counterCaps{bulkMask: 0x05}, 200, allocFlowCounterIn{Bulk: 4}, 512},
		{"by logarithm", logs, 4, allocFlowCounterIn{BulkLogSize: 2}, 4},
		{"at least a unit of the query", logs, 2, allocFlowCounterIn{BulkLogSize: 2}, 4},
		{"one more", logs, 5, allocFlowCounterIn{BulkLogSize: 3}, 8},
		{"the granularity", counterCaps{maxLog: 9, minLog: 7}, 5, allocFlowCounterIn{BulkLogSize: 7}, 128},
		{"more than the logarithms have", logs, 513, allocFlowCounterIn{Bulk: 8}, 1024},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, size, err := c.caps.alloc(c.n)
			if err != nil || got != c.want || size != c.size {
				t.Errorf("got %+v, %d, %v; want %+v, %d", got, size, err, c.want, c.size)
			}
		})
	}
	for _, n := range []int{-1, 0, MaxFlowCounters + 1} {
		if _, _, err := mask.alloc(n); err == nil {
			t.Errorf("%d counters are allocated", n)
		}
	}
	if _, _, err := (counterCaps{}).alloc(2); err == nil {
		t.Error("a device without bulks allocates one")
	}
}

// Package flexio has the places of the fields from DPDK's header, the list here has them from rdma-core's.
func TestCQOptionsSetTheFieldsOfCreateCQ(t *testing.T) {
	fields, size := columns(t, createCQList)
	for name, c := range map[string]struct {
		options DevXCQOptions
		want    map[string]uint64 // beside those of every queue
	}{
		"a ring of one entry": {DevXCQOptions{}, nil},
		"collapsed":           {DevXCQOptions{Collapsed: true}, map[string]uint64{"cc": 1}},
		"overrun ignored":     {DevXCQOptions{IgnoreOverrun: true}, map[string]uint64{"oi": 1}},
		"as many as there are": {DevXCQOptions{LogSize: 31, EQN: 0xff, Ring: 0xffff_ffff_ffff_ffc0, Doorbell: 8184},
			map[string]uint64{"log_cq_size": 31, "c_eqn": 0xff, "cq_umem_offset": 0xffff_ffff_ffff_ffc0, "dbr_addr": 8184}},
	} {
		t.Run(name, func(t *testing.T) {
			o := c.options
			o.UMEM = &UMEM{id: 0xabcdef01, mem: make([]byte, 8192)}
			o.UAR = &UAR{page: 0xfedcba}
			want := map[string]uint64{
				"opcode": 0x400, "uar_page": 0xfedcba,
				"dbr_umem_valid": 1, "dbr_umem_id": 0xabcdef01,
				"cq_umem_valid": 1, "cq_umem_id": 0xabcdef01,
			}
			maps.Copy(want, c.want)

			in, err := o.command()
			if err != nil || len(in) != size {
				t.Fatalf("%d bytes, %v, want %d", len(in), err, size)
			}
			set := 0 // bits in the fields of the list
			for _, f := range fields {
				var got uint64
				field(&prmCodec{b: in, mode: prmDecode}, f.name, f.bit, f.width, &got)
				if got != want[f.name] {
					t.Errorf("%s is %#x, want %#x", f.name, got, want[f.name])
				}
				set += bits.OnesCount64(got)
			}
			for _, b := range in {
				set -= bits.OnesCount8(b)
			}
			if set != 0 {
				t.Errorf("%d bits are set outside of the fields: %x", -set, in)
			}
		})
	}
}

// The device would write to memory that nobody has given it.
func TestCQOptionsThatNoQueueCanHaveAreRefused(t *testing.T) {
	for _, c := range []struct {
		name    string
		options DevXCQOptions
		field   string // of reference 004
	}{
		{"a record behind the umem", DevXCQOptions{Doorbell: 4096}, "cq_dbr_daddr"},
		{"a record that ends behind it", DevXCQOptions{Doorbell: 4092}, "cq_dbr_daddr"},
		{"a record before the umem", DevXCQOptions{Doorbell: 1<<64 - 8}, "cq_dbr_daddr"},
		{"a record that is not aligned", DevXCQOptions{Doorbell: 60}, "cq_dbr_daddr"},
		{"a ring that is not aligned", DevXCQOptions{Ring: 32}, "cq_ring_qmem.humem_offset"},
		{"2^32 entries", DevXCQOptions{LogSize: 32}, "log_cq_depth"},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := c.options
			o.UMEM = &UMEM{mem: make([]byte, 4096)}
			o.UAR = &UAR{}
			in, err := o.command()
			var refused *flexio.AttrError
			if !errors.As(err, &refused) || refused.Field != c.field || in != nil {
				t.Errorf("%x, %v, want it against %s", in, err, c.field)
			}
		})
	}
}
