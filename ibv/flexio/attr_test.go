package flexio

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"net"
	"slices"
	"strings"
	"testing"
)

// Memory for attributes that are right.
var (
	dpaRing  = Values{"memtype": 0, "daddr": 0x1000}
	dpaDBR   = Values{"memtype": 0, "daddr": 0x2008}
	hostRing = Values{"memtype": "FLEXIO_MEMTYPE_HOST", "humem_offset": 0x40, "umem_id": 7}
)

const object24 = 0x123456 // the number of an object

// right are attributes that are right, each field at the end of its range in one of them where it has a range.
var right = map[string][]Values{
	"flexio_affinity": {{}, {"type": "group", "id": uint32(math.MaxUint32)}, {"type": 1}},
	"flexio_app_attr": {{
		"app_name": "app", "app_ptr": []byte{1}, "app_bsize": 1, "sig_ptr": []byte{2, 3}, "sig_bsize": 2, "dpa_api_version": 1,
		"flexio_dev_versions": []uint64{1, 2, 3}, "flexio_dev_versions_len_size": 3,
	}},
	"flexio_app_select_attr": {{"app_name": "app", "ibv_ctx": 0}, {"app_name": strings.Repeat("a", 255), "hw_model_id": 3}},
	"flexio_cmdq_attr":       {{"workers": 1, "batch_size": 1, "state": "running"}},
	"flexio_cq_attr": {
		{
			"log_cq_depth": 31, "element_type": "thread", "thread": object24, "uar_id": 1<<24 - 1, "uar_base_addr": 0x7f00, "cqe_comp_type": "enhanced",
			"cqe_comp_format": MiniL34HStrIdx, "cq_period_mode": "CQE", "cq_period": 4095, "cq_max_count": math.MaxUint16, "no_arm": true,
			"overrun_ignore": true, "cq_ring_qmem": dpaRing, "cq_dbr_daddr": 8,
		},
		{"element_type": "emulated EQ", "emulated_eqn": uint32(math.MaxUint32), "cc": true, "always_armed": 1, "cq_ring_qmem": hostRing, "cq_dbr_daddr": 16},
		{"element_type": 2, "emulated_eqn": 1, "cq_ring_qmem": hostRing, "cq_dbr_daddr": 16},
		{"element_type": "none", "cq_ring_qmem": dpaRing, "cq_dbr_daddr": 16},
	},
	"flexio_dev_process_tracer_ctx": {{"tracer_ctx": make([]uint32, 255)}},
	"flexio_event_handler_attr": {{
		"name": "handler", "host_stub_func": 1, "arg": 2, "affinity": Values{"type": "strict", "id": 9}, "continuable": true, "thread_local_storage_daddr": 0x40,
	}},
	"flexio_heap_mem_info": {{"base_addr": 1, "size": uint64(math.MaxUint64 - 1), "allocated": 10, "requested": 10}},
	"flexio_mem":           {{"mem_type": 0, "daddr": 1}, {"mem_type": 1, "haddr": 1}},
	"flexio_mkey_attr":     {{"pd": object24, "daddr": 1, "len": uint64(math.MaxUint64 - 1), "access": 3}},
	"flexio_msg_stream_attr_t": {{
		"stream_name": "stream", "data_bsize": 2048, "level": "FLEXIO_MSG_DEV_DEBUG", "sync_mode": "tracer", "transport_mode": "window", "tracer_mode": 0,
		"tracer_msg_formats": []string{"%d"}, "mgmt_affinity": Values{"type": "group"}, "user_cb_ctx": 1, "uar": -1,
	}, {"data_bsize": uint64(1 << 63)}},
	"flexio_outbox_attr":  {{"en_pcc": true, "uar": object24}},
	"flexio_process_attr": {{}, {"name": "process", "pd": object24, "en_pcc": true}},
	"flexio_qmem":         {dpaRing, hostRing},
	"flexio_qp_attr": {
		{},
		{
			"transport_type": "DC_CNAK", "pd": object24, "uar_id": 1<<24 - 1, "user_index": 1<<24 - 1, "ops_flag": -1, "log_sq_depth": 15,
			"sq_cqn": 1<<24 - 1, "log_rq_depth": 15, "rq_cqn": 1<<24 - 1, "qp_wq_buff_qmem": dpaRing, "qp_wq_dbr_qmem": dpaDBR, "isolate_vl_tc": true,
			"next_state": "RTS", "qp_access_mask": 0xf, "vhca_port_num": 255, "remote_qp_num": 1<<24 - 1, "path_mtu": "4096", "gid_table_index": 255,
			"grh": true, "fl": true, "dest_mac": net.HardwareAddr{1, 2, 3, 4, 5, 6}, "rgid_or_rip": [16]byte{1}, "rlid": math.MaxUint16,
			"udp_sport": math.MaxUint16, "q_key": uint32(math.MaxUint32), "next_send_psn": 1<<24 - 1, "next_rcv_psn": 1<<24 - 1, "min_rnr_nak_timer": 31,
			"retry_count": 7, "log_rra_max": 7, "log_sra_max": 7,
		},
		{"pd": object24, "no_sq": true, "rq_type": "RMP", "rmpqn": 1<<24 - 1},
		{"pd": object24, "no_sq": true, "rq_type": "zero-RQ"},
	},
	"flexio_qp_attr_opt_param_mask": {{"min_rnr_nak_timer": true, "qp_access_mask": true}},
	"flexio_tracer_msg":             {{"arg0": 1, "arg1": 2, "arg2": 3, "arg3": 4, "arg4": 5, "arg5": uint64(math.MaxUint64)}},
	"flexio_wq_attr": {
		{
			"log_wq_depth": 31, "log_wq_stride": 15, "pd": object24, "uar_id": 1<<24 - 1, "user_index": 1<<24 - 1, "wq_ring_qmem": dpaRing, "wq_dbr_qmem": dpaDBR,
			"rq": Values{"wq_type": "cyclic", "end_pad_mode": "align", "vlan_strip_disable": true, "td": object24},
		},
		{
			"pd": 0, "wq_ring_qmem": hostRing, "wq_dbr_qmem": Values{"memtype": 1, "humem_offset": 8},
			"sq": Values{"allow_multi_pkt_send_wqe": true, "tis": object24},
		},
	},
	"flexio_wq_rq_attr": {{"wq_type": 1, "end_pad_mode": 1, "vlan_strip_disable": 1, "td": object24}},
	"flexio_wq_sq_attr": {{"allow_multi_pkt_send_wqe": 1, "tis": object24}},
	"spinlock_s":        {{"locked": 1}},
}

// uses are those of the function that takes the attributes of an example.
func uses(structure string, v Values) []string {
	switch {
	case structure == "flexio_qp_attr" && len(v) > 0: // else a modification
		return []string{"create"}
	case structure == "flexio_wq_attr" && v["sq"] != nil:
		return []string{"sq"}
	case structure == "flexio_wq_attr":
		return []string{"rq"}
	}
	return nil
}

// Together the examples set every field of every attribute structure.
func TestValidAttributesAreAccepted(t *testing.T) {
	for structure, table := range attributeTables {
		set := make(map[string]bool)
		for i, v := range right[structure] {
			if err := Validate(structure, v, uses(structure, v)...); err != nil {
				t.Errorf("%s, example %d: %v", structure, i, err)
			}
			for name := range v {
				set[name] = true
			}
		}
		for _, f := range table.fields {
			if !set[f.name] {
				t.Errorf("%s.%s: no example sets it", structure, f.name)
			}
		}
	}
}

// validate validates the example with its changes: nil removes a value, and a name with a dot is that of a nested
// structure.
func (r brokenRule) validate() error {
	structure, _, _ := strings.Cut(r.field, ".")
	v := maps.Clone(right[structure][r.example])
	for name, to := range r.change {
		at := v
		if outer, field, ok := strings.Cut(name, "."); ok {
			at = maps.Clone(v[outer].(Values))
			v[outer], name = at, field
		}
		if at[name] = to; to == nil {
			delete(at, name)
		}
	}
	return Validate(structure, v, uses(structure, right[structure][r.example])...)
}

func TestEachBrokenRuleIsReportedAlone(t *testing.T) {
	for _, r := range append(brokenRules, brokenQueueRules...) {
		t.Run(r.field+": "+r.says, func(t *testing.T) {
			err := r.validate()
			var attr *AttrError
			if !errors.As(err, &attr) || !errors.Is(err, ErrAttr) {
				t.Fatalf("got %v", err)
			}
			if joined, ok := err.(interface{ Unwrap() []error }); !ok || len(joined.Unwrap()) != 1 {
				t.Errorf("%d things are wrong: %v", len(joined.Unwrap()), err)
			}
			if got := attr.Struct + "." + attr.Field; got != r.field {
				t.Errorf("names %s", got)
			}
			if !strings.Contains(err.Error(), r.says) {
				t.Errorf("says %q", err)
			}
		})
	}
}

// A rule without a row in the test above, or a field of fewer bits than its type, would be one that nothing breaks.
func TestEveryRuleIsBrokenOnce(t *testing.T) {
	all := append(slices.Clone(brokenRules), brokenQueueRules...)
	for structure, list := range rules {
		for _, r := range list {
			if r.use == collapsed {
				continue // TestCollapsedQueueNeedsTwoAttributes
			}
			want := regexpOf(r.says)
			if !slices.ContainsFunc(all, func(b brokenRule) bool {
				return b.field == structure+"."+r.field && want.MatchString(fmt.Sprint(b.validate()))
			}) {
				t.Errorf("%s.%s: no row breaks %q", structure, r.field, r.says)
			}
		}
	}
	for structure, table := range attributeTables {
		for _, f := range table.fields {
			if f.kind != number || f.names != nil || f.width == typeBits(f.ref) || f.width == 1 {
				continue
			}
			if !slices.ContainsFunc(all, func(b brokenRule) bool { return b.field == structure+"."+f.name }) {
				t.Errorf("%s.%s: no row is wider than its %d bits", structure, f.name, f.width)
			}
		}
	}
}

func TestModificationOfAQPNeedsWhatItChangesAlone(t *testing.T) {
	if err := Validate("flexio_qp_attr", Values{"next_state": "RTR", "remote_qp_num": 5}); err != nil {
		t.Error(err)
	}
}

func TestValidateReportsEveryInvalidAttribute(t *testing.T) {
	err := Validate("flexio_cq_attr", Values{"log_cq_depth": 32, "cq_period": 4096, "element_type": "none", "cq_ring_qmem": dpaRing, "cq_dbr_daddr": 8})
	for _, want := range []string{"flexio_cq_attr.log_cq_depth: 32 does not fit", "flexio_cq_attr.cq_period: 4096 does not fit"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q in it", err, want)
		}
	}
}

// A slip in a name or in a type must be no attribute that counts as not given.
func TestValuesOfNoFieldAndOfWrongTypesAreRefused(t *testing.T) {
	for _, tt := range []struct {
		structure string
		v         Values
		uses      []string
		says      string
	}{
		{"flexio_qp_attributes", Values{}, nil, "flexio_qp_attributes: no such structure"},
		{"flexio_qp_attr", Values{"log_sq_dept": 1}, nil, "flexio_qp_attr.log_sq_dept: no such field"},
		{"flexio_qp_attr", Values{}, []string{"rq"}, `flexio_qp_attr: no use "rq"`},
		{"flexio_qp_attr", Values{"log_sq_depth": 1.5}, nil, "flexio_qp_attr.log_sq_depth: float64 is no number"},
		{"flexio_qp_attr", Values{"log_sq_depth": nil}, nil, "flexio_qp_attr.log_sq_depth: <nil> is no number"},
		{"flexio_qp_attr", Values{"log_sq_depth": "6"}, nil, `flexio_qp_attr.log_sq_depth: "6" is no number`},
		{"flexio_qp_attr", Values{"transport_type": "rc"}, nil, `flexio_qp_attr.transport_type: "rc" is unknown: give a number, or one of: 0 RC, 1 UC`},
		{"flexio_qp_attr", Values{"pd": "pd"}, nil, `flexio_qp_attr.pd: "pd" is no number: give the object's number, or leave it out`},
		{"flexio_qp_attr", Values{"dest_mac": "01:02:03:04:05:06"}, nil, "flexio_qp_attr.dest_mac: string: give bytes"},
		{"flexio_qp_attr", Values{"qp_wq_dbr_qmem": 1}, nil, "flexio_qp_attr.qp_wq_dbr_qmem: int: give Values"},
		{"flexio_qp_attr", Values{"qp_wq_dbr_qmem": Values{"daddr": 8, "addr": 1}}, nil, "flexio_qp_attr.qp_wq_dbr_qmem.addr: no such field"},
		{"flexio_process_attr", Values{"name": 1}, nil, "flexio_process_attr.name: int: give a string"},
		{"flexio_dev_process_tracer_ctx", Values{"tracer_ctx": 1}, nil, "flexio_dev_process_tracer_ctx.tracer_ctx: int: give a slice"},
		{"flexio_dev_wqe_eth_seg", Values{"inline_hdrs": [3]byte{}}, nil, "flexio_dev_wqe_eth_seg.inline_hdrs: 3 bytes, the field has 2"},
		{"flexio_dev_wqe_eth_seg", Values{"inline_hdrs": [3]Syndrome{}}, nil, "flexio_dev_wqe_eth_seg.inline_hdrs: 3 bytes, the field has 2"},
	} {
		err := Validate(tt.structure, tt.v, tt.uses...)
		if !errors.Is(err, ErrAttr) || !strings.HasPrefix(err.Error(), "checking "+tt.says) {
			t.Errorf("%s %v: %v, want %q", tt.structure, tt.v, err, tt.says)
		}
	}
}

func TestCollapsedQueueNeedsTwoAttributes(t *testing.T) {
	good := Values{"element_type": "none", "cc": true, "overrun_ignore": true, "cq_ring_qmem": dpaRing, "cq_dbr_daddr": 8}
	if err := Validate("flexio_cq_attr", good, "collapsed"); err != nil {
		t.Error(err)
	}
	for field, to := range map[string]any{"cc": false, "overrun_ignore": 0, "log_cq_depth": 32} {
		v := maps.Clone(good)
		v[field] = to
		var attr *AttrError
		if err := Validate("flexio_cq_attr", v, "collapsed"); !errors.As(err, &attr) || attr.Field != field {
			t.Errorf("%s: got %v", field, err)
		}
	}
}
