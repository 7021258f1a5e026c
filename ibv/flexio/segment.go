package flexio

// The segments of a work queue entry have 16 bytes each, except for the datagram segment. flexio_dev_sqe_seg is a
// union of them. The opcode of the entry determines which segment is at which place.

// CtrlSeg is flexio_dev_wqe_ctrl_seg, mlx5_wqe_ctrl_seg: the first of every send WQE.
type CtrlSeg struct {
	IdxOpcode       uint32 `ref:"idx_opcode"`         // opmod 31..24, WQE index 23..8, opcode 7..0
	QPNDS           uint32 `ref:"qpn_ds"`             // QP number 31..8, segments of 16 bytes 5..0
	SignatureFMCESE uint32 `ref:"signature_fm_ce_se"` // signature 31..24, DCI stream 23..8, fence 7..5, completion 3..2, solicited 1
	GeneralID       uint32 `ref:"general_id"`         // immediate data, or the key to invalidate
}

// AtomicSeg is flexio_dev_wqe_atomic_seg, mlx5_wqe_atomic_seg.
type AtomicSeg struct {
	SwapOrAddData uint64 `ref:"swap_or_add_data"`
	CompareData   uint64 `ref:"compare_data"`
}

// DatagramSeg is flexio_dev_wqe_datagram_seg, mlx5_wqe_av: 48 bytes. The first eight bytes are a Q_Key and a
// reserved word, or the key of a DC transport.
type DatagramSeg struct {
	QKey       uint32   `ref:"qkey"`
	Reserved   uint32   `ref:"reserved"`
	ExtDqpDct  uint32   `ref:"ext_dqp_dct"` // extension 31, destination QP or DCT 23..0
	StatRateSL uint8    `ref:"stat_rate_sl"`
	FlMlid     uint8    `ref:"fl_mlid"`
	RlidSport  uint16   `ref:"rlid_sport"` // remote LID, or UDP source port of RoCE
	Reserved0  [4]byte  `ref:"reserved0"`
	RMAC       [6]byte  `ref:"rmac"`
	TClass     uint8    `ref:"tclass"`
	HopLimit   uint8    `ref:"hop_limit"`
	GRHGIDFl   uint32   `ref:"grh_gid_fl"` // GRH 30, source GID 27..20, flow label 19..0
	RGID       [16]byte `ref:"rgid"`
}

// DCKey returns dc_key: the first eight bytes, as the key of a DC transport.
func (d *DatagramSeg) DCKey() uint64 { return uint64(d.QKey)<<32 | uint64(d.Reserved) }

// SetDCKey sets dc_key, and so overwrites QKey and Reserved.
func (d *DatagramSeg) SetDCKey(k uint64) { d.QKey, d.Reserved = uint32(k>>32), uint32(k) }

// EthSeg is flexio_dev_wqe_eth_seg: the first 16 bytes of mlx5_wqe_eth_seg. Inlined headers follow.
type EthSeg struct {
	Rsvd0        uint32  `ref:"rsvd0"`
	CSSWPFlags   uint16  `ref:"cs_swp_flags"` // cs_flags, then swp_flags
	MSS          uint16  `ref:"mss"`
	Rsvd2        uint32  `ref:"rsvd2"`
	InlineHdrBsz uint16  `ref:"inline_hdr_bsz"`
	InlineHdrs   [2]byte `ref:"inline_hdrs"`
}

// InlineDataSeg is flexio_dev_wqe_inline_data_seg.
type InlineDataSeg struct {
	InlineData [16]byte `ref:"inline_data"`
}

// InlineSendDataSeg is flexio_dev_wqe_inline_send_data_seg: mlx5_wqe_inl_data_seg and the first 12 bytes of data.
type InlineSendDataSeg struct {
	ByteCount      uint32    `ref:"byte_count"` // InlineSeg and the number of bytes
	DataAndPadding [3]uint32 `ref:"data_and_padding"`
}

// InlineSeg is a bit of InlineSendDataSeg.ByteCount. It announces data instead of a pointer (mlx5dv.h
// MLX5_INLINE_SEG).
const InlineSeg = 1 << 31

// MemPtrSendDataSeg is flexio_dev_wqe_mem_ptr_send_data_seg, mlx5_wqe_data_seg.
type MemPtrSendDataSeg struct {
	ByteCount uint32 `ref:"byte_count"`
	LKey      uint32 `ref:"lkey"`
	Addr      uint64 `ref:"addr"`
}

// RcvDataSeg is flexio_dev_wqe_rcv_data_seg, mlx5_wqe_data_seg.
type RcvDataSeg struct {
	ByteCount uint32 `ref:"byte_count"`
	LKey      uint32 `ref:"lkey"`
	Addr      uint64 `ref:"addr"`
}

// RDMASeg is flexio_dev_wqe_rdma_seg, mlx5_wqe_raddr_seg.
type RDMASeg struct {
	RAddr uint64 `ref:"raddr"`
	RKey  uint32 `ref:"rkey"`
	Rsvd0 uint32 `ref:"rsvd0"`
}

// SharedReceiveSeg is flexio_dev_wqe_shared_receive_seg, mlx5_wqe_srq_next_seg.
type SharedReceiveSeg struct {
	Rsvd0        [2]byte  `ref:"rsvd0"`
	NextWQEIndex uint16   `ref:"next_wqe_index"`
	Signature    uint8    `ref:"signature"`
	Rsvd1        [11]byte `ref:"rsvd1"`
}

// TransposeSeg is flexio_dev_wqe_transpose_seg. No public header has a twin.
type TransposeSeg struct {
	Rsvd0       [3]byte `ref:"rsvd0"`
	ElementSize uint8   `ref:"element_size"`
	Rsvd1       uint8   `ref:"rsvd1"`
	NumOfCols   uint8   `ref:"num_of_cols"` // 7 bits
	Rsvd2       uint8   `ref:"rsvd2"`
	NumOfRows   uint8   `ref:"num_of_rows"` // 7 bits
	Rsvd4       [8]byte `ref:"rsvd4"`
}

// WaitOnDataSeg is flexio_dev_wqe_wait_on_data_seg: the first half of DPDK's mlx5_wqe_wseg. The reference declares
// the words of this segment alone in host order, and its places of the two parts of the address overlap. We use
// big-endian words as in all other segments, and put one part behind the other.
type WaitOnDataSeg struct {
	Rsvd0         [3]byte `ref:"rsvd0"`
	OpInv         uint8   `ref:"op_inv"` // operation 3..0, inverted 4
	LKey          uint32  `ref:"lkey"`
	VA63_32       uint32  `ref:"va_63_32"`
	VA31_3FailAct uint32  `ref:"va_31_3_fail_act"` // bits 31..3 address, bits 2..0 action after a failure
}

// WaitOnDataDataSeg is flexio_dev_wqe_wait_on_data_data_seg: the second half of DPDK's
// mlx5_wqe_wseg.
type WaitOnDataDataSeg struct {
	Data     uint64 `ref:"data"`
	DataMask uint64 `ref:"data_mask"`
}
