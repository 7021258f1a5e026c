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

// CQPeriodMode is the event that starts cq_period (enum flexio_cq_period_mode).
type CQPeriodMode uint8

// What starts the period.
const (
	CQPeriodFromEvent CQPeriodMode = 0 // the last event
	CQPeriodFromCQE   CQPeriodMode = 1 // the last CQE
)

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

var miniNames = map[uint64]string{
	uint64(MiniHash): "HASH", uint64(MiniCsum): "CSUM", uint64(MiniFtagStrIdx): "FTAG_STRIDX", uint64(MiniCsumStrIdx): "CSUM_STRIDX",
	uint64(MiniL34HStrIdx): "L34H_STRIDX",
}

// MemType is the owner of memory (enum flexio_memtype).
type MemType uint8

// The owners of memory.
const (
	MemTypeDPA  MemType = 0
	MemTypeHost MemType = 1
)

// DPAAddr is an address in the memory of the DPA, the device's processor (flexio_uintptr_t). 0 means no address.
type DPAAddr uint64

// QMem is flexio_qmem: the place of a queue. Set DAddr for DPA memory, and HUMEMOffset for host memory.
type QMem struct {
	MemType     MemType
	DAddr       DPAAddr // DPA memory: the address
	HUMEMOffset uint64  // host memory: the offset in the umem, in bytes
	UMEMID      uint32
}

// CQAttr is flexio_cq_attr: the attributes of a new CQ. [CQAttr.CreateCQ] turns them into the device's command.
type CQAttr struct {
	LogCQDepth  uint8
	ElementType CQElementType
	Thread      *uint32 // of element type thread: the thread's number for the device
	EmulatedEQN uint32  // of element types EQ and emulated EQ
	UARID       uint32
	UARBaseAddr uint64 // of a devx UAR, which the library uses to arm the CQ

	CQECompType   Compression
	CQECompFormat CQECompFormat

	CQPeriodMode CQPeriodMode
	CQPeriod     uint16 // microseconds, at most 4095
	CQMaxCount   uint16 // entries

	NoArm         bool
	AlwaysArmed   bool
	CC            bool // collapsed: write every entry to the first slot
	OverrunIgnore bool // do not expect the consumer to move the doorbell record

	CQRingQMem QMem
	CQDBRDAddr DPAAddr
}

// values returns the attributes under the names of the reference.
func (a *CQAttr) values() Values {
	v := Values{
		"log_cq_depth":    a.LogCQDepth,
		"element_type":    a.ElementType,
		"emulated_eqn":    a.EmulatedEQN,
		"uar_id":          a.UARID,
		"uar_base_addr":   a.UARBaseAddr,
		"cqe_comp_type":   a.CQECompType,
		"cqe_comp_format": a.CQECompFormat,
		"cq_period_mode":  a.CQPeriodMode,
		"cq_period":       a.CQPeriod,
		"cq_max_count":    a.CQMaxCount,
		"no_arm":          a.NoArm,
		"always_armed":    a.AlwaysArmed,
		"cc":              a.CC,
		"overrun_ignore":  a.OverrunIgnore,
		"cq_ring_qmem": Values{
			"memtype":      a.CQRingQMem.MemType,
			"daddr":        a.CQRingQMem.DAddr,
			"humem_offset": a.CQRingQMem.HUMEMOffset,
			"umem_id":      a.CQRingQMem.UMEMID,
		},
		"cq_dbr_daddr": a.CQDBRDAddr,
	}
	if a.Thread != nil {
		v["thread"] = *a.Thread
	}
	return v
}

// Validate reports every attribute that is wrong.
func (a *CQAttr) Validate() error { return Validate("flexio_cq_attr", a.values()) }

// ValidateCollapsed calls Validate, and also reports why a [Collapsed] could not count the queue. A Collapsed only
// reads one slot and never moves the doorbell record. So the queue must be collapsed, and the device must ignore
// overruns.
func (a *CQAttr) ValidateCollapsed() error { return Validate("flexio_cq_attr", a.values(), collapsed) }

// HeapMemInfo is the place of a process's heap in the memory of the DPA, of flexio_heap_mem_info.
type HeapMemInfo struct {
	BaseAddr DPAAddr
	Size     uint64 // bytes
}

// offset returns the offset of an address in the heap. ok is false unless all of the n bytes there are in the heap.
// For an address before the heap, the difference wraps around to a number above its size.
func (h *HeapMemInfo) offset(at DPAAddr, n uint64) (offset uint64, ok bool) {
	offset = uint64(at - h.BaseAddr)
	return offset, offset <= h.Size && n <= h.Size-offset
}

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

// CreateCQIn is the command CREATE_CQ, mlx5_ifc_create_cq_in_bits, for a CQ with its ring and doorbell record in umems.
type CreateCQIn struct{ fields Values }

// Append appends the 272 bytes of the command to b. Pass them to mlx5dv_devx_obj_create.
func (in CreateCQIn) Append(b []byte) ([]byte, error) { return Append(b, createCQIn, in.fields) }

const opCreateCQ = 0x400 // MLX5_CMD_OP_CREATE_CQ

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

	context := Values{
		"cc":                      a.CC,
		"oi":                      a.OverrunIgnore,
		"always_armed_cq":         a.AlwaysArmed,
		"log_cq_size":             a.LogCQDepth,
		"uar_page":                a.UARID,
		"cq_period_mode":          a.CQPeriodMode,
		"cq_period":               a.CQPeriod,
		"cq_max_count":            a.CQMaxCount,
		"cqe_comp_en":             a.CQECompType != Uncompressed,
		"cqe_comp_layout":         a.CQECompType == Enhanced,
		"mini_cqe_res_format":     a.CQECompFormat & 3,
		"mini_cqe_res_format_ext": a.CQECompFormat >> 2,
		"dbr_umem_valid":          true,
		"dbr_umem_id":             p.HeapUMEMID,
	}
	in := Values{"opcode": opCreateCQ, "cq_context": context, "cq_umem_valid": true}
	a.setElement(p, context)

	c := checks{of: "flexio_cq_attr"}
	a.setRing(p, in, &c)
	a.setDoorbell(p, context, &c)
	if err := c.err(); err != nil {
		return CreateCQIn{}, err
	}
	return CreateCQIn{in}, nil
}

// setElement sets the receiver of the CQ's events. The SDK's element types with up to three bits are the device's
// types for elements other than ordinary EQs. The rest are ordinary EQs.
func (a *CQAttr) setElement(p CQPlacement, context Values) {
	switch a.ElementType {
	case CQElementThread:
		context["ext_element"] = true
		context["ext_element_type"] = a.ElementType
		context["c_eqn"] = *a.Thread
	case CQElementEQ:
		context["ext_element"] = true
		context["ext_element_type"] = a.ElementType
		context["c_eqn"] = a.EmulatedEQN
	case CQElementEmulatedEQ:
		context["c_eqn"] = a.EmulatedEQN
	case CQElementNone:
		context["c_eqn"] = p.EQN
	}
}

// setRing sets the place of the ring: an offset in a umem of the host, or in the umem of the heap.
func (a *CQAttr) setRing(p CQPlacement, in Values, c *checks) {
	ring := a.CQRingQMem
	if ring.MemType == MemTypeHost {
		in["cq_umem_id"] = ring.UMEMID
		in["cq_umem_offset"] = ring.HUMEMOffset
		return
	}

	size := uint64(64) << a.LogCQDepth
	offset, ok := p.Heap.offset(ring.DAddr, size)
	if !ok {
		c.refuse("cq_ring_qmem.daddr", "%d bytes at %#x are not in the heap of %d bytes at %#x",
			size, uint64(ring.DAddr), p.Heap.Size, uint64(p.Heap.BaseAddr))
	}
	in["cq_umem_id"] = p.HeapUMEMID
	in["cq_umem_offset"] = offset
}

// setDoorbell sets the place of the doorbell record, which is always in the umem of the heap.
func (a *CQAttr) setDoorbell(p CQPlacement, context Values, c *checks) {
	offset, ok := p.Heap.offset(a.CQDBRDAddr, 8)
	if !ok {
		c.refuse("cq_dbr_daddr", "8 bytes at %#x are not in the heap of %d bytes at %#x",
			uint64(a.CQDBRDAddr), p.Heap.Size, uint64(p.Heap.BaseAddr))
	}
	context["dbr_addr"] = offset
}
