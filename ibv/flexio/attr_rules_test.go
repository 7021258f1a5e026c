package flexio

import (
	"regexp"
	"strings"
)

// brokenRule is an example that breaks a rule of the field.
type brokenRule struct {
	field   string // of the structure, in the words of the reference
	example int    // of right
	change  Values // nil removes a value
	says    string // a part of the reason
}

// regexpOf matches a text of a rule, whatever the values in it.
func regexpOf(says string) *regexp.Regexp {
	return regexp.MustCompile(regexp.MustCompile(`\\\{\w+\\\}`).ReplaceAllString(regexp.QuoteMeta(says), ".*"))
}

// brokenRules are of all but queues.
var brokenRules = []brokenRule{
	{"flexio_affinity.type", 1, Values{"type": 3}, "3 is unknown"},
	{"flexio_affinity.id", 0, Values{"id": 1}, "reserved"},

	{"flexio_app_attr.app_name", 0, Values{"app_name": ""}, "has a name"},
	{"flexio_app_attr.app_name", 0, Values{"app_name": nil}, "has a name"},
	{"flexio_app_attr.app_name", 0, Values{"app_name": "a\x00b"}, "a byte of 0"},
	{"flexio_app_attr.app_ptr", 0, Values{"app_ptr": nil, "app_bsize": 0}, "no application"},
	{"flexio_app_attr.app_bsize", 0, Values{"app_bsize": 2}, "app_ptr has 1 bytes"},
	{"flexio_app_attr.sig_bsize", 0, Values{"sig_bsize": 0}, "sig_ptr has 2 bytes"},
	{"flexio_app_attr.sig_bsize", 0, Values{"sig_ptr": nil}, "sig_ptr has 0 bytes"},
	{"flexio_app_attr.flexio_dev_versions_len_size", 0, Values{"flexio_dev_versions_len_size": 24}, "24, and flexio_dev_versions has 3"},

	{"flexio_app_select_attr.app_name", 0, Values{"app_name": ""}, "no name"},
	{"flexio_app_select_attr.app_name", 0, Values{"app_name": strings.Repeat("a", 256)}, "256 bytes: at most 255"},
	{"flexio_app_select_attr.ibv_ctx", 0, Values{"ibv_ctx": nil}, "required with the default"},

	{"flexio_cmdq_attr.workers", 0, Values{"workers": 0}, "without workers"},
	{"flexio_cmdq_attr.workers", 0, Values{"workers": uint32(1 << 31)}, "31 bits"},
	{"flexio_cmdq_attr.batch_size", 0, Values{"batch_size": nil}, "no task"},
	{"flexio_cmdq_attr.batch_size", 0, Values{"batch_size": uint32(1 << 31)}, "31 bits"},
	{"flexio_cmdq_attr.state", 0, Values{"state": 2}, "unknown"},

	{"flexio_dev_process_tracer_ctx.tracer_ctx", 0, Values{"tracer_ctx": make([]uint32, 256)}, "256: a process has at most 255"},

	{"flexio_event_handler_attr.name", 0, Values{"name": "\x00"}, "a byte of 0"},
	{"flexio_event_handler_attr.host_stub_func", 0, Values{"host_stub_func": 0}, "no function"},
	{"flexio_event_handler_attr.affinity.type", 0, Values{"affinity.type": 9}, "unknown"},
	{"flexio_event_handler_attr.affinity.id", 0, Values{"affinity.type": 0}, "reserved"},

	{"flexio_heap_mem_info.size", 0, Values{"base_addr": 2}, "from 0x2 on go beyond the address space"},
	{"flexio_heap_mem_info.allocated", 0, Values{"size": 9}, "10 bytes of a heap of 9"},
	{"flexio_heap_mem_info.requested", 0, Values{"requested": 11}, "more than the 10"},

	{"flexio_mem.mem_type", 0, Values{"mem_type": 2, "daddr": 0}, "unknown"},
	{"flexio_mem.daddr", 1, Values{"daddr": 1}, "DPA memory only"},
	{"flexio_mem.haddr", 0, Values{"haddr": 1}, "host memory only"},

	{"flexio_mkey_attr.pd", 0, Values{"pd": nil}, "protection domain"},
	{"flexio_mkey_attr.daddr", 0, Values{"daddr": 0}, "no DPA address"},
	{"flexio_mkey_attr.len", 0, Values{"len": 0}, "no memory"},
	{"flexio_mkey_attr.len", 0, Values{"daddr": 2}, "no memory"},
	{"flexio_mkey_attr.access", 0, Values{"access": 4}, "0x4"},

	{"flexio_msg_stream_attr_t.stream_name", 0, Values{"stream_name": "\x00"}, "a byte of 0"},
	{"flexio_msg_stream_attr_t.data_bsize", 0, Values{"data_bsize": 1024}, "1024 is not"},
	{"flexio_msg_stream_attr_t.data_bsize", 0, Values{"data_bsize": 2048 + 1024}, "3072 is not"},
	{"flexio_msg_stream_attr_t.level", 0, Values{"level": 6}, "unknown"},
	{"flexio_msg_stream_attr_t.level", 0, Values{"level": "FLEXIO_MSG_DEV_ALWAYS_PRINT"}, "FLEXIO_MSG_DEV_ALWAYS_PRINT is of a message, not of a stream"},
	{"flexio_msg_stream_attr_t.sync_mode", 1, Values{"sync_mode": 4}, "unknown"},
	{"flexio_msg_stream_attr_t.transport_mode", 0, Values{"transport_mode": 2}, "unknown"},
	{"flexio_msg_stream_attr_t.tracer_mode", 0, Values{"tracer_mode": 1}, "never to be used"},
	{"flexio_msg_stream_attr_t.tracer_msg_formats", 0, Values{"tracer_msg_formats": nil}, "no templates"},
	{"flexio_msg_stream_attr_t.tracer_msg_formats", 0, Values{"tracer_msg_formats": []string{"%d", ""}}, "a template is empty"},
	{"flexio_msg_stream_attr_t.tracer_msg_formats", 0, Values{"tracer_msg_formats": []int{1}}, "[]int: give a slice of strings"},
	{"flexio_msg_stream_attr_t.mgmt_affinity.id", 0, Values{"mgmt_affinity.type": 0, "mgmt_affinity.id": 1}, "reserved"},

	{"flexio_process_attr.name", 1, Values{"name": strings.Repeat("a", 300)}, "300 bytes"},

	{"flexio_qmem.memtype", 0, Values{"memtype": 2}, "2 is unknown"},
	{"flexio_qmem.daddr", 0, Values{"daddr": 0}, "no DPA address"},
	{"flexio_qmem.daddr", 1, Values{"daddr": 0x40}, "DPA memory only"},
	{"flexio_qmem.humem_offset", 0, Values{"humem_offset": 0x40}, "host memory only, and memtype is FLEXIO_MEMTYPE_DPA"},
}

// brokenQueueRules are of CQs, QPs and WQs.
var brokenQueueRules = []brokenRule{
	{"flexio_cq_attr.log_cq_depth", 0, Values{"log_cq_depth": 32}, "at most 31"},
	{"flexio_cq_attr.element_type", 3, Values{"element_type": 1}, "1 is unknown"},
	{"flexio_cq_attr.thread", 0, Values{"thread": nil}, "element_type is thread"},
	{"flexio_cq_attr.thread", 0, Values{"thread": 1 << 32}, "at most 32 bits"},
	{"flexio_cq_attr.thread", 1, Values{"thread": object24}, "element_type is emulated EQ"},
	{"flexio_cq_attr.emulated_eqn", 0, Values{"emulated_eqn": 1}, "element_type is thread"},
	{"flexio_cq_attr.emulated_eqn", 3, Values{"emulated_eqn": 1}, "element_type is none"},
	{"flexio_cq_attr.uar_id", 0, Values{"uar_id": 1 << 24}, "24 bits"},
	{"flexio_cq_attr.cq_period", 0, Values{"cq_period": 4096}, "at most 4095"},
	{"flexio_cq_attr.cq_period_mode", 0, Values{"cq_period_mode": 2}, "unknown"},
	{"flexio_cq_attr.cqe_comp_type", 0, Values{"cqe_comp_type": 3}, "unknown"},
	{"flexio_cq_attr.cqe_comp_format", 0, Values{"cqe_comp_format": 5}, "unknown"},
	{"flexio_cq_attr.cqe_comp_format", 1, Values{"cqe_comp_format": MiniCsum}, "CSUM, and nothing is compressed"},
	{"flexio_cq_attr.cc", 1, Values{"cqe_comp_type": "basic"}, "one slot"},
	{"flexio_cq_attr.no_arm", 1, Values{"no_arm": true}, "contradicts always_armed"},
	{"flexio_cq_attr.cq_ring_qmem", 0, Values{"cq_ring_qmem": nil}, "no memory for the ring"},
	{"flexio_cq_attr.cq_ring_qmem.daddr", 0, Values{"cq_ring_qmem.daddr": 0x1020}, "multiple of 64"},
	{"flexio_cq_attr.cq_ring_qmem.humem_offset", 1, Values{"cq_ring_qmem.humem_offset": 8}, "multiple of 64"},
	{"flexio_cq_attr.cq_ring_qmem.memtype", 0, Values{"cq_ring_qmem.memtype": 7}, "unknown"},
	{"flexio_cq_attr.cq_dbr_daddr", 0, Values{"cq_dbr_daddr": 0}, "no address"},
	{"flexio_cq_attr.cq_dbr_daddr", 0, Values{"cq_dbr_daddr": 12}, "multiple of 8"},

	{"flexio_qp_attr.transport_type", 1, Values{"transport_type": 6}, "6 is unknown: give a number, or one of: 0 RC, "},
	{"flexio_qp_attr.uar_id", 1, Values{"uar_id": 1 << 24}, "24 bits"},
	{"flexio_qp_attr.user_index", 1, Values{"user_index": 1 << 24}, "24 bits"},
	{"flexio_qp_attr.log_sq_depth", 1, Values{"log_sq_depth": 16}, "at most 15"},
	{"flexio_qp_attr.log_sq_depth", 1, Values{"log_sq_depth": -1}, "-1 is negative"},
	{"flexio_qp_attr.log_sq_depth", 2, Values{"log_sq_depth": 1}, "no_sq"},
	{"flexio_qp_attr.sq_cqn", 1, Values{"sq_cqn": 1 << 24}, "24 bits"},
	{"flexio_qp_attr.sq_cqn", 2, Values{"sq_cqn": 1}, "no_sq"},
	{"flexio_qp_attr.rq_type", 3, Values{"rq_type": 2}, "2 is unknown"},
	{"flexio_qp_attr.log_rq_depth", 1, Values{"log_rq_depth": 16}, "at most 15"},
	{"flexio_qp_attr.log_rq_depth", 3, Values{"log_rq_depth": 1}, "rq_type is zero-RQ"},
	{"flexio_qp_attr.rq_cqn", 1, Values{"rq_cqn": 1 << 24}, "24 bits"},
	{"flexio_qp_attr.rq_cqn", 2, Values{"rq_cqn": 1}, "not of an RMP"},
	{"flexio_qp_attr.rmpqn", 2, Values{"rmpqn": 1 << 24}, "24 bits"},
	{"flexio_qp_attr.rmpqn", 1, Values{"rmpqn": 1}, "rq_type is regular"},
	{"flexio_qp_attr.pd", 1, Values{"pd": nil}, "protection domain"},
	{"flexio_qp_attr.qp_wq_buff_qmem.daddr", 1, Values{"qp_wq_buff_qmem": Values{}}, "no DPA address"},
	{"flexio_qp_attr.qp_wq_buff_qmem.daddr", 1, Values{"qp_wq_buff_qmem.daddr": 0x1001}, "multiple of 64"},
	{"flexio_qp_attr.qp_wq_buff_qmem", 1, Values{"qp_wq_buff_qmem": nil}, "no memory for the ring"},
	{"flexio_qp_attr.qp_wq_dbr_qmem.daddr", 1, Values{"qp_wq_dbr_qmem": Values{}}, "no DPA address"},
	{"flexio_qp_attr.qp_wq_dbr_qmem.daddr", 1, Values{"qp_wq_dbr_qmem.daddr": 0x2009}, "multiple of 8"},
	{"flexio_qp_attr.qp_wq_dbr_qmem", 3, Values{"no_sq": false, "qp_wq_buff_qmem": dpaRing}, "no memory for the doorbell record"},
	{"flexio_qp_attr.qp_wq_buff_qmem", 3, Values{"rq_type": "regular", "qp_wq_dbr_qmem": dpaDBR}, "no memory for the ring"},
	{"flexio_qp_attr.next_state", 1, Values{"next_state": 6}, "6 is unknown"},
	{"flexio_qp_attr.qp_access_mask", 1, Values{"qp_access_mask": 0x10}, "0x10"},
	{"flexio_qp_attr.path_mtu", 1, Values{"path_mtu": 6}, "6 is unknown"},
	{"flexio_qp_attr.dest_mac", 1, Values{"dest_mac": net5}, "5 bytes"},
	{"flexio_qp_attr.rgid_or_rip", 1, Values{"rgid_or_rip": net5}, "5 bytes"},
	{"flexio_qp_attr.remote_qp_num", 1, Values{"remote_qp_num": 1 << 24}, "24 bits"},
	{"flexio_qp_attr.next_send_psn", 1, Values{"next_send_psn": 1 << 24}, "24 bits"},
	{"flexio_qp_attr.next_rcv_psn", 1, Values{"next_rcv_psn": 1 << 24}, "24 bits"},
	{"flexio_qp_attr.min_rnr_nak_timer", 1, Values{"min_rnr_nak_timer": 32}, "at most 31"},
	{"flexio_qp_attr.retry_count", 1, Values{"retry_count": 8}, "at most 7"},
	{"flexio_qp_attr.log_rra_max", 1, Values{"log_rra_max": 8}, "at most 7"},
	{"flexio_qp_attr.log_sra_max", 1, Values{"log_sra_max": 8}, "at most 7"},
	{"flexio_qp_attr.vhca_port_num", 1, Values{"vhca_port_num": 256}, "at most 255"},

	{"flexio_wq_attr.log_wq_depth", 0, Values{"log_wq_depth": 32}, "at most 31"},
	{"flexio_wq_attr.log_wq_stride", 0, Values{"log_wq_stride": 16}, "at most 15"},
	{"flexio_wq_attr.pd", 0, Values{"pd": nil}, "protection domain"},
	{"flexio_wq_attr.uar_id", 0, Values{"uar_id": 1 << 24}, "24 bits"},
	{"flexio_wq_attr.user_index", 0, Values{"user_index": 1 << 24}, "24 bits"},
	{"flexio_wq_attr.sq", 0, Values{"sq": Values{"tis": object24}}, "send queue only"},
	{"flexio_wq_attr.rq", 1, Values{"rq": Values{"wq_type": "cyclic"}}, "receive queue only"},
	{"flexio_wq_attr.rq.wq_type", 0, Values{"rq.wq_type": 2}, "2 is unknown"},
	{"flexio_wq_attr.rq.end_pad_mode", 0, Values{"rq.end_pad_mode": 2}, "unknown"},
	{"flexio_wq_attr.wq_ring_qmem.daddr", 0, Values{"wq_ring_qmem": Values{}}, "no DPA address"},
	{"flexio_wq_attr.wq_ring_qmem", 0, Values{"wq_ring_qmem": nil}, "no memory for the ring"},
	{"flexio_wq_attr.wq_dbr_qmem", 0, Values{"wq_dbr_qmem": nil}, "no memory for the doorbell record"},
	{"flexio_wq_attr.wq_dbr_qmem.humem_offset", 1, Values{"wq_dbr_qmem.humem_offset": 4}, "multiple of 8"},
}

var net5 = []byte{1, 2, 3, 4, 5}
