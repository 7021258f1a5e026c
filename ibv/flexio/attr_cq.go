package flexio

// CQElementType is the receiver of a CQ's events. The reference names four: thread, EQ, none, emulated EQ. Their
// numbers come from the SDK's public flexio.h, which reserves 1.
type CQElementType uint8

// The receivers of a CQ's events.
const (
	CQElementThread     CQElementType = 0x0 // FLEXIO_CQ_ELEMENT_TYPE_DPA_THREAD
	CQElementEQ         CQElementType = 0x2 // FLEXIO_CQ_ELEMENT_TYPE_EXT_EQ
	CQElementNone       CQElementType = 0x8 // FLEXIO_CQ_ELEMENT_TYPE_NON_DPA_CQ
	CQElementEmulatedEQ CQElementType = 0x9 // FLEXIO_CQ_ELEMENT_TYPE_DPA_MSIX_EMULATED_CQ
)

var cqElementNames = map[CQElementType]string{
	CQElementThread: "thread", CQElementEQ: "EQ", CQElementNone: "none", CQElementEmulatedEQ: "emulated EQ",
}

func (t CQElementType) String() string { return name(cqElementNames, "element type", t) }

// CQPeriodMode is the event that starts cq_period (enum flexio_cq_period_mode).
type CQPeriodMode uint8

// What starts the period.
const (
	CQPeriodFromEvent CQPeriodMode = 0 // the last event
	CQPeriodFromCQE   CQPeriodMode = 1 // the last CQE
)

func (m CQPeriodMode) String() string {
	return name(map[CQPeriodMode]string{CQPeriodFromEvent: "event", CQPeriodFromCQE: "CQE"}, "period mode", m)
}

// CQECompType is the compression of entries (enum flexio_cqe_comp_type).
type CQECompType uint8

// The kinds of compression. [Compression] explains them.
const (
	CQECompNone     CQECompType = 0
	CQECompBasic    CQECompType = 1
	CQECompEnhanced CQECompType = 2
)

var cqeCompNames = map[CQECompType]string{CQECompNone: "none", CQECompBasic: "basic", CQECompEnhanced: "enhanced"}

func (t CQECompType) String() string { return name(cqeCompNames, "compression type", t) }

// Compression returns the value of RingOptions.Compression for the ring of this queue.
func (t CQECompType) Compression() Compression { return Compression(t) }

// CQECompFormat is the content of the first half of a responder's mini-CQE (enum flexio_cqe_comp_format). The
// reference gives no values, so we use those of the device (DPDK mlx5_prm.h MLX5_CQE_RESP_FORMAT_*).
type CQECompFormat uint8

// The contents of a mini-CQE besides the byte count.
const (
	MiniHash       CQECompFormat = 0
	MiniCsum       CQECompFormat = 1
	MiniFtagStrIdx CQECompFormat = 2
	MiniCsumStrIdx CQECompFormat = 3
	MiniL34HStrIdx CQECompFormat = 4
)

var miniNames = map[CQECompFormat]string{
	MiniHash: "HASH", MiniCsum: "CSUM", MiniFtagStrIdx: "FTAG_STRIDX", MiniCsumStrIdx: "CSUM_STRIDX", MiniL34HStrIdx: "L34H_STRIDX",
}

func (f CQECompFormat) String() string { return name(miniNames, "mini-CQE format", f) }

// CQAttr is flexio_cq_attr: the attributes of a new CQ. [CQAttr.CreateCQ] turns them into the
// device's command.
type CQAttr struct {
	LogCQDepth  uint8         `ref:"log_cq_depth"`
	ElementType CQElementType `ref:"element_type"`
	Thread      *Object       `ref:"thread"`       // of element type thread
	EmulatedEQN uint32        `ref:"emulated_eqn"` // of element types EQ and emulated EQ
	UARID       uint32        `ref:"uar_id"`
	UARBaseAddr HostAddr      `ref:"uar_base_addr"` // of a devx UAR, which the library uses to arm the CQ

	CQECompType   CQECompType   `ref:"cqe_comp_type"`
	CQECompFormat CQECompFormat `ref:"cqe_comp_format"`

	CQPeriodMode CQPeriodMode `ref:"cq_period_mode"`
	CQPeriod     uint16       `ref:"cq_period"`    // microseconds, at most 4095
	CQMaxCount   uint16       `ref:"cq_max_count"` // entries

	NoArm         bool `ref:"no_arm"`
	AlwaysArmed   bool `ref:"always_armed"`
	CC            bool `ref:"cc"`             // collapsed: write every entry to the first slot
	OverrunIgnore bool `ref:"overrun_ignore"` // do not expect the consumer to move the doorbell record

	CQRingQMem QMem    `ref:"cq_ring_qmem"`
	CQDBRDAddr DPAAddr `ref:"cq_dbr_daddr"`
}

// Validate reports every attribute that is wrong.
func (a *CQAttr) Validate() error {
	c := checks{of: "flexio_cq_attr"}
	a.checkElement(&c)
	c.fits("log_cq_depth", uint64(a.LogCQDepth), 5)
	c.fits("uar_id", uint64(a.UARID), 24)
	c.fits("cq_period", uint64(a.CQPeriod), 12)
	c.known("cq_period_mode", a.CQPeriodMode, a.CQPeriodMode <= CQPeriodFromCQE)
	c.known("cqe_comp_type", a.CQECompType, a.CQECompType <= CQECompEnhanced)
	c.known("cqe_comp_format", a.CQECompFormat, a.CQECompFormat <= MiniL34HStrIdx)
	if a.CQECompFormat != 0 && a.CQECompType == CQECompNone {
		c.refuse("cqe_comp_format", "%s, and nothing is compressed: set cqe_comp_type", a.CQECompFormat)
	}
	if a.CC && a.CQECompType != CQECompNone {
		c.refuse("cc", "a collapsed queue has one slot, in which no compressed entry can be told from another")
	}
	if a.AlwaysArmed && a.NoArm {
		c.refuse("no_arm", "contradicts always_armed")
	}
	c.within("cq_ring_qmem", func(c *checks) { a.CQRingQMem.check(c, ringAlign) })
	if a.CQDBRDAddr == 0 || a.CQDBRDAddr%dbrAlign != 0 {
		c.refuse("cq_dbr_daddr", "%#x is no address of a doorbell record, 8 bytes at a multiple of 8", uint64(a.CQDBRDAddr))
	}
	return c.err()
}

func (a *CQAttr) checkElement(c *checks) {
	_, ok := cqElementNames[a.ElementType]
	c.known("element_type", a.ElementType, ok)
	switch {
	case a.ElementType == CQElementThread && a.Thread == nil:
		c.refuse("thread", "none, and element_type is thread")
	case a.ElementType != CQElementThread && a.Thread != nil:
		c.refuse("thread", "is of element type thread only, and element_type is %s", a.ElementType)
	}
	if a.EmulatedEQN != 0 && a.ElementType != CQElementEQ && a.ElementType != CQElementEmulatedEQ {
		c.refuse("emulated_eqn", "is of an EQ only, and element_type is %s", a.ElementType)
	}
}

// ValidateCollapsed calls Validate, and also reports why a [Collapsed] could not count the queue. A Collapsed only
// reads one slot and never moves the doorbell record. So the queue must be collapsed, and the device must ignore
// overruns.
func (a *CQAttr) ValidateCollapsed() error {
	if err := a.Validate(); err != nil {
		return err
	}
	c := checks{of: "flexio_cq_attr"}
	if !a.CC {
		c.refuse("cc", "not set: entries go round a ring")
	}
	if !a.OverrunIgnore {
		c.refuse("overrun_ignore", "not set: the queue fails after 2^%d completions, because its doorbell record does not move", a.LogCQDepth)
	}
	return c.err()
}
