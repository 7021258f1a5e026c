package flexio

// CQPlacement adds to the attributes of a CQ what the SDK's library knows itself: objects of the process and
// of the device.
type CQPlacement struct {
	// EQN is the event queue of a CQ with element type none. The device requires one even then.
	EQN uint32

	// Heap is the process's heap in the memory of the DPA, and HeapUMEMID its umem. The command contains
	// offsets in this umem instead of DPA addresses.
	Heap       HeapMemInfo
	HeapUMEMID uint32
}

// CreateCQ turns the attributes into the device's command. It returns an [AttrError] for each attribute refused
// by Validate, and for DPA addresses outside the heap.
//
// Note that no queue has been created with this command on a device yet. The bits come from public headers and
// from a device's own output. But the SDK's library, which is not public, decides which attribute sets which
// bits, so we inferred a part of this: see docs/flexio.md. no_arm and uar_base_addr are not in the command,
// because a doorbell arms the CQ after its creation.
func (a *CQAttr) CreateCQ(p CQPlacement) (CreateCQIn, error) {
	if err := a.Validate(); err != nil {
		return CreateCQIn{}, err
	}

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
	a.setElement(p, &in.CQContext)

	c := checks{of: "flexio_cq_attr"}
	a.setRing(p, &in, &c)
	a.setDoorbell(p, &in.CQContext, &c)
	if err := c.err(); err != nil {
		return CreateCQIn{}, err
	}
	return in, nil
}

// setElement sets the receiver of the CQ's events. The SDK's element types with up to three bits are the device's
// types for elements other than ordinary EQs. The rest are ordinary EQs.
func (a *CQAttr) setElement(p CQPlacement, cqc *CQContext) {
	switch a.ElementType {
	case CQElementThread:
		cqc.ExtElement = true
		cqc.ExtElementType = uint8(a.ElementType)
		cqc.CEQN = a.Thread.ID
	case CQElementEQ:
		cqc.ExtElement = true
		cqc.ExtElementType = uint8(a.ElementType)
		cqc.CEQN = a.EmulatedEQN
	case CQElementEmulatedEQ:
		cqc.CEQN = a.EmulatedEQN
	case CQElementNone:
		cqc.CEQN = p.EQN
	}
}

// setRing sets the place of the ring: an offset in a umem of the host, or in the umem of the heap.
func (a *CQAttr) setRing(p CQPlacement, in *CreateCQIn, c *checks) {
	in.CQUMEMValid = true
	ring := a.CQRingQMem
	if ring.MemType == MemTypeHost {
		in.CQUMEMID = ring.UMEMID
		in.CQUMEMOffset = ring.HUMEMOffset
		return
	}

	size := uint64(64) << a.LogCQDepth
	offset, ok := p.Heap.offset(ring.DAddr, size)
	if !ok {
		c.refuse("cq_ring_qmem.daddr", "%d bytes at %#x are not in the heap of %d bytes at %#x",
			size, uint64(ring.DAddr), p.Heap.Size, uint64(p.Heap.BaseAddr))
	}
	in.CQUMEMID = p.HeapUMEMID
	in.CQUMEMOffset = offset
}

// setDoorbell sets the place of the doorbell record, which is always in the umem of the heap.
func (a *CQAttr) setDoorbell(p CQPlacement, cqc *CQContext, c *checks) {
	offset, ok := p.Heap.offset(a.CQDBRDAddr, 8)
	if !ok {
		c.refuse("cq_dbr_daddr", "8 bytes at %#x are not in the heap of %d bytes at %#x",
			uint64(a.CQDBRDAddr), p.Heap.Size, uint64(p.Heap.BaseAddr))
	}
	cqc.DBRUMEMValid = true
	cqc.DBRUMEMID = p.HeapUMEMID
	cqc.DBRAddr = offset
}
