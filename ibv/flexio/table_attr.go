package flexio

import (
	"math"
	"slices"
)

// attributeTables are the structures that the SDK's host library takes. The reference gives their fields, units and
// rules, but no layout. The width of a number is that of the device's field, where it is less than the type's.
var attributeTables = map[string]table{
	"flexio_affinity": {fields: []field{ // where a thread of the DPA runs
		enum("type", "enum flexio_affinity_type", map[uint64]string{0: "none", 1: "strict", 2: "group"}),
		attr(32, "id", "uint32_t", ""), // of the execution unit or the group
	}},
	"flexio_app_attr": {fields: []field{ // the SDK makes it; programs use flexio_app_select_attr
		other(text, "app_name", "const char *"),
		other(octets, "app_ptr", "void *"), // the application, an ELF file
		attr(64, "app_bsize", "size_t", "bytes"),
		other(octets, "sig_ptr", "void *"),
		attr(64, "sig_bsize", "size_t", "bytes"), // 0: no signature
		attr(64, "dpa_api_version", "uint64_t", ""),
		other(list, "flexio_dev_versions", "uint64_t *"),
		attr(64, "flexio_dev_versions_len_size", "size_t", "elements"),
	}},
	"flexio_app_select_attr": {fields: []field{ // selects an application of a program
		other(text, "app_name", "const char *"),
		attr(32, "hw_model_id", "enum flexio_hw_model_id", ""), // 0, FLEXIO_HW_MODEL_DEF: the model of the device
		other(object, "ibv_ctx", "ibv_context *"),
	}},
	"flexio_cmdq_attr": {fields: []field{ // a command queue: asynchronous RPC
		attr(31, "workers", "int", ""),
		attr(31, "batch_size", "int", "tasks"), // for an invocation of a worker
		enum("state", "enum flexio_cmdq_state", map[uint64]string{0: "pending", 1: "running"}),
	}},
	cqAttr: {fields: []field{
		attr(5, "log_cq_depth", "uint8_t", "2^n entries"),
		enum("element_type", "uint8_t", map[uint64]string{
			elementThread: "thread", elementEQ: "EQ", elementNone: "none", elementEmulatedEQ: "emulated EQ",
		}),
		other(object, "thread", "flexio_thread *"),
		attr(32, "emulated_eqn", "uint32_t", ""),
		attr(24, "uar_id", "uint32_t", ""),
		addr("uar_base_addr", "void *"), // of a devx UAR, which the library uses to arm the CQ
		enum("cqe_comp_type", "enum flexio_cqe_comp_type", map[uint64]string{uint64(Uncompressed): "none", uint64(Basic): "basic", uint64(Enhanced): "enhanced"}),
		enum("cqe_comp_format", "enum flexio_cqe_comp_format", miniNames),
		enum("cq_period_mode", "enum flexio_cq_period_mode", map[uint64]string{0: "event", 1: "CQE"}),
		attr(12, "cq_period", "uint16_t", "µs"),
		attr(16, "cq_max_count", "uint16_t", "entries"),
		boolean("no_arm", "bool"),
		boolean("always_armed", "uint8_t"),
		boolean("cc", "bool"),
		boolean("overrun_ignore", "uint8_t"),
		memory("cq_ring_qmem", ringAlign),
		addr("cq_dbr_daddr", "flexio_uintptr_t"),
	}},
	"flexio_dev_process_tracer_ctx": {fields: []field{ // the reference does not define the content of a tracer
		other(list, "tracer_ctx", "flexio_tracer_streams_data[] *"),
	}},
	"flexio_event_handler_attr": {fields: []field{ // an event handler is a thread of the DPA
		other(text, "name", "const char *"),
		addr("host_stub_func", "flexio_func_t* *"), // stands for the thread's function on the host
		attr(64, "arg", "uint64_t", ""),
		sub("affinity", "flexio_affinity"),
		boolean("continuable", "int"),
		addr("thread_local_storage_daddr", "flexio_uintptr_t"),
	}},
	"flexio_heap_mem_info": {fields: []field{ // the heap of a process, in the memory of the DPA
		addr("base_addr", "uint64_t"),
		attr(64, "size", "size_t", "bytes"),
		attr(64, "requested", "size_t", "bytes"),
		attr(64, "allocated", "size_t", "bytes"),
	}},
	"flexio_mem": {fields: []field{
		enum("mem_type", "enum flexio_memtype", memTypeNames),
		addr("daddr", "flexio_uintptr_t"),
		addr("haddr", "uintptr_t"),
	}},
	"flexio_mkey_attr": {fields: []field{
		other(object, "pd", "ibv_pd *"),
		addr("daddr", "flexio_uintptr_t"),
		attr(64, "len", "size_t", "bytes"),
		attr(32, "access", "int", unitAccess),
	}},
	"flexio_msg_stream_attr_t": {fields: []field{ // messages from the DPA to the host; numbered as in the public flexio.h
		other(text, "stream_name", "const char *"),
		attr(64, "data_bsize", "size_t", "bytes"),
		enum("level", "flexio_msg_dev_level", map[uint64]string{ // each includes the lower numbers
			0: "FLEXIO_MSG_DEV_NO_PRINT", 1: "FLEXIO_MSG_DEV_ALWAYS_PRINT", 2: "FLEXIO_MSG_DEV_ERROR",
			3: "FLEXIO_MSG_DEV_WARN", 4: "FLEXIO_MSG_DEV_INFO", 5: "FLEXIO_MSG_DEV_DEBUG",
		}),
		enum("sync_mode", "enum flexio_msg_dev_sync_mode", map[uint64]string{0: "sync", 1: "async", 2: "batch", 3: "tracer"}),
		enum("transport_mode", "enum flexio_msg_transport", map[uint64]string{0: "QP", 1: "window"}),
		attr(32, "tracer_mode", "enum flexio_msg_transport", ""), // the old name of transport_mode
		other(list, "tracer_msg_formats", templates),             // templates by message ID, without the final NULL of C
		sub("mgmt_affinity", "flexio_affinity"),
		addr("user_cb_ctx", "void *"),
		other(ignored, "uar", "flexio_uar *"), // the SDK uses the process's own
	}},
	"flexio_outbox_attr": {fields: []field{
		boolean("en_pcc", "uint32_t"),
		other(ignored, "uar", "flexio_uar *"),
	}},
	"flexio_process_attr": {fields: []field{
		other(text, "name", "const char *"),
		other(object, "pd", "ibv_pd *"), // none: one of its own
		boolean("en_pcc", "int"),
	}},
	"flexio_qmem": {fields: []field{ // the place of a queue
		enum("memtype", "enum flexio_memtype", memTypeNames),
		addr("daddr", "flexio_uintptr_t"),
		attr(64, "humem_offset", "uint64_t", "bytes"),
		attr(32, "umem_id", "uint32_t", ""),
	}},
	"flexio_qp_attr": {fields: []field{
		// Of a new QP. The numbers of the transports are the device's (qpc.st), and those of the public flexio.h.
		enum("transport_type", "enum flexio_qp_transport_type", map[uint64]string{
			0x0: "RC", 0x1: "UC", 0x2: "UD", 0x3: "XRC", 0x4: "IBL2", 0x5: "DCI", 0x7: "QP0", 0x8: "QP1", 0x9: "RAW_DATAGRAM", 0xc: "REG_UMR", 0x10: "DC_CNAK",
		}),
		other(object, "pd", "ibv_pd *"),
		attr(24, "uar_id", "uint32_t", ""),
		attr(24, "user_index", "uint32_t", ""),
		other(ignored, "ops_flag", "int"),
		boolean("no_sq", "int"),
		attr(4, "log_sq_depth", "int", "2^n entries"),
		attr(24, "sq_cqn", "uint32_t", ""),
		enum("rq_type", "int", map[uint64]string{0: "regular", 1: "RMP", 3: "zero-RQ"}), // RMP: a pool that several QPs may share
		attr(4, "log_rq_depth", "int", "2^n entries"),
		attr(24, "rq_cqn", "uint32_t", ""),
		attr(24, "rmpqn", "uint32_t", ""),
		memory("qp_wq_buff_qmem", ringAlign),
		memory("qp_wq_dbr_qmem", dbrAlign),
		boolean("isolate_vl_tc", "uint8_t"),

		// Of a modification.
		enum("next_state", "enum flexio_qp_state", map[uint64]string{0: "RST", 1: "INIT", 2: "RTR", 3: "RTS"}),
		attr(32, "qp_access_mask", "int", unitAccess),
		attr(8, "vhca_port_num", "uint8_t", ""),
		attr(24, "remote_qp_num", "uint32_t", ""),
		enum("path_mtu", "enum flexio_qp_qpc_mtu", map[uint64]string{0: "not given", 1: "256", 2: "512", 3: "1024", 4: "2048", 5: "4096"}),
		attr(8, "gid_table_index", "uint8_t", ""),
		boolean("grh", "uint8_t"),
		boolean("fl", "uint8_t"), // force loopback
		other(octets, "dest_mac", "uint8_t *"),
		other(octets, "rgid_or_rip", "ibv_gid"),
		attr(16, "rlid", "uint16_t", ""),
		attr(16, "udp_sport", "uint16_t", ""),
		attr(32, "q_key", "uint32_t", ""),
		attr(24, "next_send_psn", "uint32_t", ""),
		attr(24, "next_rcv_psn", "uint32_t", ""),
		attr(5, "min_rnr_nak_timer", "uint32_t", "a code, not a time"),
		attr(3, "retry_count", "uint8_t", ""),
		attr(3, "log_rra_max", "uint8_t", "2^n operations"),
		attr(3, "log_sra_max", "uint8_t", "2^n operations"),
	}},
	"flexio_qp_attr_opt_param_mask": {fields: []field{ // the optional attributes to modify
		boolean("min_rnr_nak_timer", "bool"),
		boolean("qp_access_mask", "bool"),
	}},
	"flexio_tracer_msg": {fields: []field{ // the arguments of a template
		attr(64, "arg0", "uint64_t", ""),
		attr(64, "arg1", "uint64_t", ""),
		attr(64, "arg2", "uint64_t", ""),
		attr(64, "arg3", "uint64_t", ""),
		attr(64, "arg4", "uint64_t", ""),
		attr(64, "arg5", "uint64_t", ""),
	}},
	"flexio_wq_attr": {fields: []field{ // a receive or a send queue: the use "rq" or "sq" says which
		attr(5, "log_wq_depth", "uint8_t", "2^n entries"),
		attr(4, "log_wq_stride", "uint8_t", "2^n bytes; 0 stands for 4"),
		other(object, "pd", "ibv_pd *"),
		attr(24, "uar_id", "uint32_t", ""),
		attr(24, "user_index", "uint32_t", ""),
		sub("rq", "flexio_wq_rq_attr"),
		sub("sq", "flexio_wq_sq_attr"),
		memory("wq_ring_qmem", ringAlign),
		memory("wq_dbr_qmem", dbrAlign),
	}},
	"flexio_wq_rq_attr": {fields: []field{
		enum("wq_type", "enum flexio_wq_type", map[uint64]string{0: "linked list", 1: "cyclic"}), // a [Collapsed] counts a cyclic one
		enum("end_pad_mode", "enum flexio_wq_end_pad_mode", map[uint64]string{0: "none", 1: "align"}),
		boolean("vlan_strip_disable", "uint8_t"),
		other(object, "td", "flexio_transport_domain *"), // none: the SDK makes one
	}},
	"flexio_wq_sq_attr": {fields: []field{
		boolean("allow_multi_pkt_send_wqe", "uint8_t"),
		other(object, "tis", "flexio_sq_tis *"), // none: the SDK makes one
	}},
	"spinlock_s": {fields: []field{ // of threads of the DPA: the host may read it, and must not take it
		attr(32, "locked", "uint32_t", ""), // 0: free
	}},
}

// memTypeNames are the owners of memory.
var memTypeNames = map[uint64]string{memDPA: "FLEXIO_MEMTYPE_DPA", memHost: "FLEXIO_MEMTYPE_HOST"}

// The device requires a ring to begin at a multiple of 64 bytes, the size of its entries, and a doorbell record at a
// multiple of 8.
const (
	ringAlign = 64
	dbrAlign  = 8
	dbrSize   = 8
)

// rule says when a field is wrong although its value is in range.
type rule struct {
	field string
	use   string // the rule is of this use alone; "" is every use
	wrong func(given) bool
	says  string // {name} stands for the value of a field
}

const (
	cqAttr = "flexio_cq_attr"

	memDPA  = 0 // FLEXIO_MEMTYPE_DPA
	memHost = 1 // FLEXIO_MEMTYPE_HOST

	elementThread     = 0x0 // FLEXIO_CQ_ELEMENT_TYPE_DPA_THREAD
	elementEQ         = 0x2 // FLEXIO_CQ_ELEMENT_TYPE_EXT_EQ
	elementNone       = 0x8 // FLEXIO_CQ_ELEMENT_TYPE_NON_DPA_CQ
	elementEmulatedEQ = 0x9 // FLEXIO_CQ_ELEMENT_TYPE_DPA_MSIX_EMULATED_CQ

	rqRegular = 0 // rq_type
	rqRMP     = 1

	alwaysPrint = 1   // FLEXIO_MSG_DEV_ALWAYS_PRINT
	maxStreams  = 255 // FLEXIO_MSG_DEV_MAX_STREAMS_AMOUNT
	maxNameLen  = 256 // FLEXIO_MAX_NAME_LEN, with the 0 at the end

	mkeyAccess = 1<<0 | 1<<1              // IBV_ACCESS_LOCAL_WRITE, _REMOTE_WRITE
	qpAccess   = mkeyAccess | 1<<2 | 1<<3 // and _REMOTE_READ, _REMOTE_ATOMIC
)

// rules are the rules of the reference between fields, and those that are no range.
var rules = map[string][]rule{
	"flexio_affinity": {
		{"id", "", func(v given) bool { return v.num("type") == 0 && v.num("id") != 0 }, "is reserved for type none"},
	},
	"flexio_app_attr": {
		{"app_name", "", func(v given) bool { return v.len("app_name") == 0 }, "an application has a name"},
		{"app_ptr", "", func(v given) bool { return v.len("app_ptr") == 0 }, "no application"},
		{"app_bsize", "", func(v given) bool { return v.num("app_bsize") != v.len("app_ptr") }, "{app_bsize}, and app_ptr has {app_ptr} bytes"},
		{"sig_bsize", "", func(v given) bool { return v.num("sig_bsize") != v.len("sig_ptr") }, "{sig_bsize}, and sig_ptr has {sig_ptr} bytes"},
		{"flexio_dev_versions_len_size", "", func(v given) bool { return v.num("flexio_dev_versions_len_size") != v.len("flexio_dev_versions") },
			"{flexio_dev_versions_len_size}, and flexio_dev_versions has {flexio_dev_versions}"},
	},
	"flexio_app_select_attr": {
		{"app_name", "", func(v given) bool { return v.len("app_name") == 0 }, "no name to match"},
		{"ibv_ctx", "", func(v given) bool { return v.num("hw_model_id") == 0 && !v.has("ibv_ctx") }, "required with the default hw_model_id, which is the device's"},
	},
	"flexio_cmdq_attr": {
		{"workers", "", func(v given) bool { return v.num("workers") == 0 }, "a queue without workers"},
		{"batch_size", "", func(v given) bool { return v.num("batch_size") == 0 }, "a worker would run no task"},
	},
	cqAttr: {
		{"thread", "", func(v given) bool { return v.num("element_type") == elementThread && !v.has("thread") }, "none, and element_type is thread"},
		{"thread", "", func(v given) bool { return v.num("element_type") != elementThread && v.has("thread") },
			"is of element type thread only, and element_type is {element_type}"},
		{"emulated_eqn", "", func(v given) bool {
			of := v.num("element_type")
			return v.num("emulated_eqn") != 0 && of != elementEQ && of != elementEmulatedEQ
		}, "is of an EQ only, and element_type is {element_type}"},
		{"cqe_comp_format", "", func(v given) bool { return v.num("cqe_comp_format") != 0 && v.num("cqe_comp_type") == 0 },
			"{cqe_comp_format}, and nothing is compressed: set cqe_comp_type"},
		{"cc", "", func(v given) bool { return v.num("cc") != 0 && v.num("cqe_comp_type") != 0 },
			"a collapsed queue has one slot, in which no compressed entry can be told from another"},
		{"no_arm", "", func(v given) bool { return v.num("no_arm") != 0 && v.num("always_armed") != 0 }, "contradicts always_armed"},
		{"cq_ring_qmem", "", func(v given) bool { return !v.has("cq_ring_qmem") }, "no memory for the ring"},
		{"cq_dbr_daddr", "", func(v given) bool { at := v.num("cq_dbr_daddr"); return at == 0 || at%dbrAlign != 0 },
			"{cq_dbr_daddr} is no address of a doorbell record, 8 bytes at a multiple of 8"},
		{"cc", collapsed, func(v given) bool { return v.num("cc") == 0 }, "not set: entries go round a ring"},
		{"overrun_ignore", collapsed, func(v given) bool { return v.num("overrun_ignore") == 0 },
			"not set: the queue fails after 2^{log_cq_depth} completions, because its doorbell record does not move"},
	},
	"flexio_dev_process_tracer_ctx": {
		{"tracer_ctx", "", func(v given) bool { return v.len("tracer_ctx") > maxStreams }, "{tracer_ctx}: a process has at most 255 streams"},
	},
	"flexio_event_handler_attr": {
		{"host_stub_func", "", func(v given) bool { return v.num("host_stub_func") == 0 }, "no function to run"},
	},
	"flexio_heap_mem_info": {
		{"size", "", func(v given) bool { return v.num("size") > math.MaxUint64-v.num("base_addr") },
			"{size} bytes from {base_addr} on go beyond the address space"},
		{"allocated", "", func(v given) bool { return v.num("allocated") > v.num("size") }, "{allocated} bytes of a heap of {size}"},
		{"requested", "", func(v given) bool { return v.num("requested") > v.num("allocated") },
			"{requested} bytes, more than the {allocated} allocated for them"},
	},
	"flexio_mem": {
		{"daddr", "", func(v given) bool { return v.num("daddr") != 0 && v.num("mem_type") != memDPA }, "is of DPA memory only, and mem_type is {mem_type}"},
		{"haddr", "", func(v given) bool { return v.num("haddr") != 0 && v.num("mem_type") != memHost }, "is of host memory only, and mem_type is {mem_type}"},
	},
	"flexio_mkey_attr": {
		{"pd", "", func(v given) bool { return !v.has("pd") }, "an MKey belongs to a protection domain"},
		{"daddr", "", func(v given) bool { return v.num("daddr") == 0 }, "no DPA address"},
		{"len", "", func(v given) bool { return v.num("len") == 0 || v.num("len") > math.MaxUint64-v.num("daddr") }, "{len} bytes at {daddr} are no memory"},
		{"access", "", func(v given) bool { return v.num("access")&^mkeyAccess != 0 },
			"{access}: an MKey takes IBV_ACCESS_REMOTE_WRITE and IBV_ACCESS_LOCAL_WRITE"},
	},
	"flexio_msg_stream_attr_t": {
		{"data_bsize", "", func(v given) bool { n := v.num("data_bsize"); return n < 2048 || n&(n-1) != 0 }, "{data_bsize} is not a power of two of at least 2048"},
		{"level", "", func(v given) bool { return v.num("level") == alwaysPrint }, "{level} is of a message, not of a stream"},
		{"tracer_mode", "", func(v given) bool { return v.num("tracer_mode") != 0 }, "is never to be used: set transport_mode"},
		{"tracer_msg_formats", "", func(v given) bool { return v.num("sync_mode") == 3 && v.len("tracer_msg_formats") == 0 }, "no templates, and sync_mode is tracer"},
		{"tracer_msg_formats", "", func(v given) bool { return slices.Contains(v.texts("tracer_msg_formats"), "") },
			"a template is empty: messages with its ID say nothing"},
	},
	"flexio_qmem": {
		{"daddr", "", func(v given) bool { return v.num("memtype") == memDPA && v.num("daddr") == 0 }, "no DPA address, and memtype is {memtype}"},
		{"humem_offset", "", func(v given) bool { return v.num("memtype") == memDPA && v.num("humem_offset") != 0 },
			"is of host memory only, and memtype is {memtype}"},
		{"daddr", "", func(v given) bool { return v.num("memtype") == memHost && v.num("daddr") != 0 }, "is of DPA memory only, and memtype is {memtype}"},
	},
	"flexio_qp_attr": {
		{"log_sq_depth", "", func(v given) bool { return v.num("no_sq") != 0 && v.num("log_sq_depth") != 0 }, "there is no SQ: no_sq is set"},
		{"sq_cqn", "", func(v given) bool { return v.num("no_sq") != 0 && v.num("sq_cqn") != 0 }, "there is no SQ: no_sq is set"},
		{"log_rq_depth", "", func(v given) bool { return v.num("rq_type") != rqRegular && v.num("log_rq_depth") != 0 },
			"is of a regular RQ, and rq_type is {rq_type}"},
		{"rq_cqn", "", func(v given) bool { return v.num("rq_type") == rqRMP && v.num("rq_cqn") != 0 }, "is not of an RMP, which has its own"},
		{"rmpqn", "", func(v given) bool { return v.num("rq_type") != rqRMP && v.num("rmpqn") != 0 }, "is of an RMP only, and rq_type is {rq_type}"},
		{"qp_access_mask", "", func(v given) bool { return v.num("qp_access_mask")&^qpAccess != 0 },
			"{qp_access_mask}: a QP takes IBV_ACCESS_LOCAL_WRITE, _REMOTE_WRITE, _REMOTE_READ and _REMOTE_ATOMIC"},
		{"dest_mac", "", func(v given) bool { n := v.len("dest_mac"); return n != 0 && n != 6 }, "{dest_mac} bytes, a MAC address has 6"},
		{"rgid_or_rip", "", func(v given) bool { n := v.len("rgid_or_rip"); return n != 0 && n != 16 }, "{rgid_or_rip} bytes, a GID has 16"},
		{"pd", create, func(v given) bool { return !v.has("pd") }, "a QP belongs to a protection domain"},
		{"qp_wq_buff_qmem", create, func(v given) bool { return v.hasQueue() && !v.has("qp_wq_buff_qmem") }, "no memory for the ring"},
		{"qp_wq_dbr_qmem", create, func(v given) bool { return v.hasQueue() && !v.has("qp_wq_dbr_qmem") }, "no memory for the doorbell record"},
	},
	"flexio_wq_attr": {
		{"pd", "", func(v given) bool { return !v.has("pd") }, "a queue belongs to a protection domain"},
		{"sq", rq, func(v given) bool { return v.has("sq") }, "is of a send queue only"},
		{"rq", sq, func(v given) bool { return v.has("rq") }, "is of a receive queue only"},
		{"wq_ring_qmem", "", func(v given) bool { return !v.has("wq_ring_qmem") }, "no memory for the ring"},
		{"wq_dbr_qmem", "", func(v given) bool { return !v.has("wq_dbr_qmem") }, "no memory for the doorbell record"},
	},
}

// The uses of [Validate].
const (
	create    = "create"
	collapsed = "collapsed"
	rq        = "rq"
	sq        = "sq"
)
