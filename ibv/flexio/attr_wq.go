package flexio

// WQType is enum flexio_wq_type.
type WQType uint8

// The kinds of receive queue. [Collapsed] can only count a cyclic one.
const (
	WQLinkedList WQType = 0
	WQCyclic     WQType = 1
)

func (t WQType) String() string {
	return name(map[WQType]string{WQLinkedList: "linked list", WQCyclic: "cyclic"}, "WQ type", t)
}

// WQEndPadMode is enum flexio_wq_end_pad_mode. The reference gives no values, so we use those of the device (DPDK
// mlx5_prm.h MLX5_WQ_END_PAD_MODE_*).
type WQEndPadMode uint8

// The ways to pad the end of a packet.
const (
	WQEndPadNone  WQEndPadMode = 0
	WQEndPadAlign WQEndPadMode = 1
)

func (m WQEndPadMode) String() string {
	return name(map[WQEndPadMode]string{WQEndPadNone: "none", WQEndPadAlign: "align"}, "end padding mode", m)
}

// WQAttr is flexio_wq_attr: the attributes of a new receive or send queue. In the SDK the called function decides
// which of the two it is. Here, call ValidateRQ or ValidateSQ.
type WQAttr struct {
	LogWQDepth  uint8    `ref:"log_wq_depth"`
	LogWQStride uint8    `ref:"log_wq_stride"` // base-2 logarithm of an entry's bytes; 0 means 4
	PD          *Object  `ref:"pd"`
	UARID       uint32   `ref:"uar_id"`
	UserIndex   uint32   `ref:"user_index"`
	RQ          WQRQAttr `ref:"rq"`
	SQ          WQSQAttr `ref:"sq"`
	WQRingQMem  QMem     `ref:"wq_ring_qmem"`
	WQDBRQMem   QMem     `ref:"wq_dbr_qmem"`
}

// WQRQAttr is flexio_wq_rq_attr: the attributes only for receive queues.
type WQRQAttr struct {
	WQType           WQType       `ref:"wq_type"`
	EndPadMode       WQEndPadMode `ref:"end_pad_mode"`
	VLANStripDisable bool         `ref:"vlan_strip_disable"`
	TD               *Object      `ref:"td"` // transport domain; nil: the SDK makes one
}

// WQSQAttr is flexio_wq_sq_attr: the attributes only for send queues.
type WQSQAttr struct {
	AllowMultiPktSendWQE bool    `ref:"allow_multi_pkt_send_wqe"`
	TIS                  *Object `ref:"tis"` // transport interface send; nil: the SDK makes one
}

// Stride returns the size of an entry in bytes.
func (a *WQAttr) Stride() int {
	if a.LogWQStride == 0 {
		return 1 << 4
	}
	return 1 << a.LogWQStride
}

// ValidateRQ reports every attribute that is wrong for a receive queue.
func (a *WQAttr) ValidateRQ() error {
	c := checks{of: "flexio_wq_attr"}
	a.check(&c)
	c.within("rq", func(c *checks) {
		c.known("wq_type", a.RQ.WQType, a.RQ.WQType <= WQCyclic)
		c.known("end_pad_mode", a.RQ.EndPadMode, a.RQ.EndPadMode <= WQEndPadAlign)
	})
	if a.SQ != (WQSQAttr{}) {
		c.refuse("sq", "is of a send queue only")
	}
	return c.err()
}

// ValidateSQ reports every attribute that is wrong for a send queue.
func (a *WQAttr) ValidateSQ() error {
	c := checks{of: "flexio_wq_attr"}
	a.check(&c)
	if a.RQ != (WQRQAttr{}) {
		c.refuse("rq", "is of a receive queue only")
	}
	return c.err()
}

func (a *WQAttr) check(c *checks) {
	c.fits("log_wq_depth", uint64(a.LogWQDepth), 5)
	c.fits("log_wq_stride", uint64(a.LogWQStride), 4)
	c.fits("uar_id", uint64(a.UARID), 24)
	c.fits("user_index", uint64(a.UserIndex), 24)
	if a.PD == nil {
		c.refuse("pd", "a queue belongs to a protection domain")
	}
	c.within("wq_ring_qmem", func(c *checks) { a.WQRingQMem.check(c, ringAlign) })
	c.within("wq_dbr_qmem", func(c *checks) { a.WQDBRQMem.check(c, dbrAlign) })
}
