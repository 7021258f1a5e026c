package flexio

// CQPlacement is the part of a CQ that its attributes leave to the SDK's library: objects of the
// process and of the device.
type CQPlacement struct {
	// EQN is the event queue of a CQ of element type none, which has one all the same.
	EQN uint32
	// Heap is the process's heap in the memory of the DPA, and HeapUMEMID the umem by
	// which the device knows it. DPA addresses are turned into offsets in it.
	Heap       HeapMemInfo
	HeapUMEMID uint32
}

// CreateCQ turns the attributes into the device's command. The bits come from public headers and
// from a device's own output. The library decides which attribute goes where, and is not public:
// docs/flexio.md lists the inferred parts. No queue has been created with it on a device.
//
// no_arm and uar_base_addr are not in the command: a CQ is armed by its doorbell, after it was
// created.
func (a *CQAttr) CreateCQ(p CQPlacement) (CreateCQIn, error) {
	if err := a.Validate(); err != nil {
		return CreateCQIn{}, err
	}
	c := checks{of: "flexio_cq_attr"}
	in := CreateCQIn{Opcode: opCreateCQ, CQContext: CQContext{
		CC:                  a.CC,
		OI:                  a.OverrunIgnore,
		AlwaysArmedCQ:       a.AlwaysArmed,
		LogCQSize:           a.LogCQDepth,
		UARPage:             a.UARID,
		CQPeriodMode:        uint8(a.CQPeriodMode),
		CQPeriod:            a.CQPeriod,
		CQMaxCount:          a.CQMaxCount,
		CQECompEn:           a.CQECompType != CQECompNone,
		MiniCQEResFormat:    uint8(a.CQECompFormat) & 3,
		MiniCQEResFormatExt: uint8(a.CQECompFormat) >> 2,
	}}
	if a.CQECompType == CQECompEnhanced {
		in.CQContext.CQECompLayout = 1
	}
	a.element(p, &in.CQContext)
	a.places(p, &in, &c)
	if err := c.err(); err != nil {
		return CreateCQIn{}, err
	}
	return in, nil
}

// element attaches the CQ. The element types of the SDK that fit the context's three bits
// are the device's own for an element outside the usual EQs; the others are EQs.
func (a *CQAttr) element(p CQPlacement, cqc *CQContext) {
	switch a.ElementType {
	case CQElementThread:
		cqc.ExtElement, cqc.ExtElementType, cqc.CEQN = true, uint8(a.ElementType), a.Thread.ID
	case CQElementEQ:
		cqc.ExtElement, cqc.ExtElementType, cqc.CEQN = true, uint8(a.ElementType), a.EmulatedEQN
	case CQElementEmulatedEQ:
		cqc.CEQN = a.EmulatedEQN
	case CQElementNone:
		cqc.CEQN = p.EQN
	}
}

// places says where the ring and the doorbell record lie: at offsets in umems.
func (a *CQAttr) places(p CQPlacement, in *CreateCQIn, c *checks) {
	in.CQUMEMValid = true
	if q := a.CQRingQMem; q.MemType == MemTypeHost {
		in.CQUMEMID, in.CQUMEMOffset = q.UMEMID, q.HUMEMOffset
	} else {
		size := uint64(64) << a.LogCQDepth
		off, ok := p.Heap.offset(q.DAddr, size)
		if !ok {
			c.refuse("cq_ring_qmem.daddr", "%d bytes at %#x are not in the heap of %d bytes at %#x", size, uint64(q.DAddr), p.Heap.Size, uint64(p.Heap.BaseAddr))
		}
		in.CQUMEMID, in.CQUMEMOffset = p.HeapUMEMID, off
	}
	off, ok := p.Heap.offset(a.CQDBRDAddr, 8)
	if !ok {
		c.refuse("cq_dbr_daddr", "8 bytes at %#x are not in the heap of %d bytes at %#x", uint64(a.CQDBRDAddr), p.Heap.Size, uint64(p.Heap.BaseAddr))
	}
	in.CQContext.DBRUMEMValid, in.CQContext.DBRUMEMID, in.CQContext.DBRAddr = true, p.HeapUMEMID, off
}
