package flexio

// queueTables are the structures in queue memory, each in the order of its bytes, without holes. All words are
// big-endian. A number beside a field of other rows is another reading of their bytes. docs/flexio.md tells where the
// reference's own places cannot be.
var queueTables = map[string]table{
	// flexio_dev_cqe64: mlx5_cqe64 of mlx5dv.h. [CQE64] is the same entry for hot paths.
	"flexio_dev_cqe64": {size: 64, fields: []field{
		raw(0x00, 20, "rsvd00", "00h..04h"),
		num(0x14, 16, "csum_ok", "05h 16..31"),
		raw(0x16, 2, "rsvd22", "05h 0..15"),
		raw(0x18, 8, "rsvd24", "06h..07h"),
		num(0x20, 32, "srqn_uidx", "08h"),
		num(0x24, 32, "imm_inval_pkey", "09h"),
		num(0x28, 32, "rsvd40", "0Ah"),
		num(0x2c, 32, "byte_cnt", "0Bh"),
		num(0x30, 32, "rsvd48", "0Ch"), // upper half of the timestamp
		num(0x34, 8, "hw_err_syndrome", "0Dh 24..31"),
		num(0x35, 8, "rsvd50", "0Dh 16..23"),
		num(0x36, 8, "vendor_err_synd", "0Dh 08..15"),
		num(0x37, 8, "syndrome", "0Dh 00..07"),
		num(0x38, 8, "sop_rdrop", "0Eh 24..31"),
		num(0x39, 24, "qpn24", "0Eh 0..23"),
		num(0x38, 32, "qpn", "0Eh"), // sop_rdrop and qpn24
		num(0x3c, 16, "wqe_counter", "0Fh 16..31"),
		num(0x3e, 8, "signature", "0Fh 8..15"),
		num(0x3f, 8, "op_own", "0Fh 0..0,04..07"),
	}},
	// flexio_dev_mini_cqe64: an entry full of mini-CQEs, as in enhanced compression. [Ring] expands it.
	"flexio_dev_mini_cqe64": {size: 64, fields: []field{
		raw(0x00, 56, "mini_cqe", "00h..37h"),
		raw(0x38, 6, "rsvd0", "38h..3dh"),
		num(0x3e, 8, "validity_iteration_count", "3eh..3eh"),
		num(0x3f, 8, "num_and_type", "3fh..3fh"),
	}},
	// flexio_dev_eqe: the reference gives one member of the union event_data, the completion event.
	"flexio_dev_eqe": {size: 64, fields: []field{
		num(0x00, 8, "rsvd00", "00h"),
		num(0x01, 8, "type", "01h"),
		num(0x02, 8, "rsvd02", "02h"),
		num(0x03, 8, "sub_type", "03h"),
		raw(0x04, 28, "rsvd4", "04h..1fh"),
		raw(0x20, 28, "event_data", "20h"), // the next two
		raw(0x20, 24, "event_data.rsvd00", "00h..17h"),
		num(0x39, 24, "event_data.cqn", "18h 24 lsb"),
		num(0x3c, 16, "rsvd3c", "3Ch"),
		num(0x3e, 8, "signature", "3Eh"),
		num(0x3f, 8, "owner", "3Fh"),
	}},

	// The segments of a work queue entry. The opcode of the entry determines which segment is at which place.
	"flexio_dev_wqe_ctrl_seg": {size: 16, fields: []field{ // mlx5_wqe_ctrl_seg
		num(0x0, 32, "idx_opcode", "00h"),         // opmod 31..24, WQE index 23..8, opcode 7..0
		num(0x4, 32, "qpn_ds", "01h"),             // QP number 31..8, segments of 16 bytes 5..0
		num(0x8, 32, "signature_fm_ce_se", "02h"), // signature 31..24, DCI stream 23..8, fence 7..5, completion 3..2, solicited 1
		num(0xc, 32, "general_id", "03h"),         // immediate data, or the key to invalidate
	}},
	"flexio_dev_wqe_atomic_seg": {size: 16, fields: []field{
		num(0x0, 64, "swap_or_add_data", "00h..01h"),
		num(0x8, 64, "compare_data", "02h..03h"),
	}},
	"flexio_dev_wqe_datagram_seg": {size: 48, fields: []field{ // mlx5_wqe_av
		num(0x00, 64, "dc_key", "0h"), // of a DC transport, in place of qkey and reserved
		num(0x00, 32, "qkey", "0h"),
		num(0x04, 32, "reserved", "4h"),
		num(0x08, 32, "ext_dqp_dct", "08h 31,23..0"),
		num(0x0c, 8, "stat_rate_sl", "0Ch 31..28,27..24"),
		num(0x0d, 8, "fl_mlid", "0Ch 23,22..16"),
		num(0x0e, 16, "rlid_sport", "0Ch 15..0"),
		raw(0x10, 4, "reserved0", "10h"),
		raw(0x14, 6, "rmac", "14h..19h"),
		num(0x1a, 8, "tclass", "1Ah"),
		num(0x1b, 8, "hop_limit", "1Bh"),
		num(0x1c, 32, "grh_gid_fl", "1Ch 30,27..20,19..0"),
		raw(0x20, 16, "rgid", "20h..2Ch"),
	}},
	"flexio_dev_wqe_eth_seg": {size: 16, fields: []field{ // the first half of mlx5_wqe_eth_seg: inlined headers go on
		num(0x0, 32, "rsvd0", "00h"),
		num(0x4, 16, "cs_swp_flags", "01h 16..31"),
		num(0x6, 16, "mss", "01h 0..15"),
		num(0x8, 32, "rsvd2", "02h"),
		num(0xc, 16, "inline_hdr_bsz", "03h 16..31"),
		raw(0xe, 2, "inline_hdrs", "03h 0..15"),
	}},
	"flexio_dev_wqe_inline_data_seg": {size: 16, fields: []field{
		raw(0x0, 16, "inline_data", "00h..03h"),
	}},
	"flexio_dev_wqe_inline_send_data_seg": {size: 16, fields: []field{ // mlx5_wqe_inl_data_seg, and the first data
		num(0x0, 32, "byte_count", "00h"), // bit 31 announces data in place of a pointer: MLX5_INLINE_SEG
		raw(0x4, 12, "data_and_padding", "01h..03h"),
	}},
	"flexio_dev_wqe_mem_ptr_send_data_seg": {size: 16, fields: []field{ // mlx5_wqe_data_seg
		num(0x0, 32, "byte_count", "00h"),
		num(0x4, 32, "lkey", "01h"),
		num(0x8, 64, "addr", "02h..03h"),
	}},
	"flexio_dev_wqe_rcv_data_seg": {size: 16, fields: []field{ // mlx5_wqe_data_seg
		num(0x0, 32, "byte_count", "00h"),
		num(0x4, 32, "lkey", "01h"),
		num(0x8, 64, "addr", "02h..03h"),
	}},
	"flexio_dev_wqe_rdma_seg": {size: 16, fields: []field{ // mlx5_wqe_raddr_seg
		num(0x0, 64, "raddr", "00h..01h"),
		num(0x8, 32, "rkey", "02h"),
		num(0xc, 32, "rsvd0", "03h"),
	}},
	"flexio_dev_wqe_shared_receive_seg": {size: 16, fields: []field{ // mlx5_wqe_srq_next_seg
		raw(0x0, 2, "rsvd0", ""),
		num(0x2, 16, "next_wqe_index", ""),
		num(0x4, 8, "signature", ""),
		raw(0x5, 11, "rsvd1", ""),
	}},
	"flexio_dev_wqe_transpose_seg": {size: 16, fields: []field{ // no public header has a twin
		raw(0x0, 3, "rsvd0", "00h 8..31"),
		num(0x3, 8, "element_size", "00h 0..7"),
		num(0x4, 8, "rsvd1", "01h"),
		num(0x5, 8, "num_of_cols", "01h 16..22"), // 7 bits
		num(0x6, 8, "rsvd2", "01h"),
		num(0x7, 8, "num_of_rows", "01h 0..6"), // 7 bits
		raw(0x8, 8, "rsvd4", "02h..03h"),
	}},
	"flexio_dev_wqe_wait_on_data_seg": {size: 16, fields: []field{ // the first half of DPDK's mlx5_wqe_wseg
		raw(0x0, 3, "rsvd0", "0h 2h"),
		num(0x3, 8, "op_inv", "3h 0..3,4..4"),
		num(0x4, 32, "lkey", "4h..7h"),
		num(0x8, 32, "va_63_32", "8h..bh"),
		num(0xc, 32, "va_31_3_fail_act", "8h..fh 0..2,3..31"), // bits 31..3 address, 2..0 action after a failure
	}},
	"flexio_dev_wqe_wait_on_data_data_seg": {size: 16, fields: []field{ // the second half
		num(0x0, 64, "data", "0h..7h"),
		num(0x8, 64, "data_mask", "8h..fh"),
	}},

	// flexio_dev_sqe_seg is one of the segments. Its bytes do not tell which, so it is encoded and never decoded.
	"flexio_dev_sqe_seg": {union: true, fields: []field{
		sub("adres_vector", "flexio_dev_wqe_datagram_seg"),
		sub("atomic", "flexio_dev_wqe_atomic_seg"),
		sub("ctrl", "flexio_dev_wqe_ctrl_seg"),
		sub("eth", "flexio_dev_wqe_eth_seg"),
		sub("inline_data", "flexio_dev_wqe_inline_data_seg"),
		sub("inline_send_data", "flexio_dev_wqe_inline_send_data_seg"),
		sub("mem_ptr_send_data", "flexio_dev_wqe_mem_ptr_send_data_seg"),
		sub("rdma", "flexio_dev_wqe_rdma_seg"),
		sub("shared_receive", "flexio_dev_wqe_shared_receive_seg"),
		sub("transpose", "flexio_dev_wqe_transpose_seg"),
		sub("wait_on_data", "flexio_dev_wqe_wait_on_data_seg"),
		sub("wait_on_data_data", "flexio_dev_wqe_wait_on_data_data_seg"),
	}},
}

// commandTables are structures of the device's commands, which the reference does not have. Their names and bits are
// those of DPDK's mlx5_prm.h.
var commandTables = map[string]table{
	cqContext: {size: 64, fields: []field{
		bit(0x000, 4, "status"),
		bit(0x004, 1, "as_notify"),
		bit(0x005, 1, "initiator_src_dct"),
		bit(0x006, 1, "dbr_umem_valid"),
		bit(0x007, 1, "ext_element"), // apu_cq in Linux
		bit(0x008, 3, "cqe_sz"),      // 0: 64 bytes, 1: 128
		bit(0x00b, 1, "cc"),
		bit(0x00d, 1, "scqe_break_moderation_en"),
		bit(0x00e, 1, "oi"),
		bit(0x00f, 2, "cq_period_mode"),
		bit(0x011, 1, "cqe_comp_en"),
		bit(0x012, 2, "mini_cqe_res_format"), // bits 1..0 of the format
		bit(0x014, 4, "st"),                  // set by the device: 6 solicited armed, 9 armed, a fired (MLX5_CQC_ST_*)
		bit(0x018, 1, "always_armed_cq"),
		bit(0x019, 3, "ext_element_type"),
		bit(0x01e, 2, "cqe_comp_layout"), // 0: basic, 1: enhanced
		bit(0x020, 32, "dbr_umem_id"),
		bit(0x054, 6, "page_offset"),
		bit(0x05c, 2, "mini_cqe_res_format_ext"), // bits 3..2 of the format
		bit(0x05e, 2, "cq_timestamp_format"),
		bit(0x063, 5, "log_cq_size"),
		bit(0x068, 24, "uar_page"),
		bit(0x084, 12, "cq_period"), // microseconds
		bit(0x090, 16, "cq_max_count"),
		bit(0x0a0, 32, "c_eqn"), // or the element; DPDK knows the lower 8 bits
		bit(0x0c3, 5, "log_page_size"),
		bit(0x108, 24, "last_notified_index"),
		bit(0x128, 24, "last_solicit_index"),
		bit(0x148, 24, "consumer_counter"),
		bit(0x168, 24, "producer_counter"),
		bit(0x180, 12, "local_partition_id"),
		bit(0x18c, 20, "process_id"),
		bit(0x1c0, 64, "dbr_addr"), // or the offset in the umem
	}},
	createCQIn: {size: 272, fields: []field{
		bit(0x000, 16, "opcode"),
		bit(0x010, 16, "uid"),
		bit(0x030, 16, "op_mod"),
		in(0x10, 64, "cq_context", cqContext),
		bit(0x280, 64, "cq_umem_offset"),
		bit(0x2c0, 32, "cq_umem_id"),
		bit(0x2e0, 1, "cq_umem_valid"),
	}},
}

const (
	cqContext  = "mlx5_ifc_cqc_bits"
	createCQIn = "mlx5_ifc_create_cq_in_bits"
)
