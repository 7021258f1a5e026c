package flexio

import "math"

// MemType is the owner of memory (enum flexio_memtype).
type MemType uint8

// The owners of memory.
const (
	MemTypeDPA  MemType = 0
	MemTypeHost MemType = 1
)

func (t MemType) String() string {
	return name(map[MemType]string{MemTypeDPA: "FLEXIO_MEMTYPE_DPA", MemTypeHost: "FLEXIO_MEMTYPE_HOST"}, "memory type", t)
}

// QMem is flexio_qmem: the place of a queue. Set DAddr for DPA memory, and HUMEMOffset for host memory.
type QMem struct {
	MemType     MemType `ref:"memtype"`
	DAddr       DPAAddr `ref:"daddr"`        // DPA memory: the address
	HUMEMOffset uint64  `ref:"humem_offset"` // host memory: the offset in the umem, in bytes
	UMEMID      uint32  `ref:"umem_id"`
}

// Validate reports every attribute that is wrong.
func (m *QMem) Validate() error {
	c := checks{of: "flexio_qmem"}
	m.check(&c, 1)
	return c.err()
}

// check also requires the memory to begin at a multiple of align.
func (m *QMem) check(c *checks, align uint64) {
	switch m.MemType {
	case MemTypeDPA:
		if m.DAddr == 0 {
			c.refuse("daddr", "no DPA address, and memtype is %s", m.MemType)
		}
		if m.HUMEMOffset != 0 {
			c.refuse("humem_offset", "is of host memory only, and memtype is %s", m.MemType)
		}
	case MemTypeHost:
		if m.DAddr != 0 {
			c.refuse("daddr", "is of DPA memory only, and memtype is %s", m.MemType)
		}
	default:
		c.known("memtype", m.MemType, false)
	}
	if uint64(m.DAddr)%align != 0 {
		c.refuse("daddr", "%#x is not a multiple of %d", uint64(m.DAddr), align)
	}
	if m.HUMEMOffset%align != 0 {
		c.refuse("humem_offset", "%#x is not a multiple of %d", m.HUMEMOffset, align)
	}
}

// unset reports whether all fields are zero.
func (m *QMem) unset() bool { return *m == QMem{} }

// The device requires a ring to begin at a multiple of 64 bytes, the size of its entries, and a doorbell record at a
// multiple of 8.
const (
	ringAlign = 64
	dbrAlign  = 8
)

// Mem is flexio_mem: memory of the DPA or of the host.
type Mem struct {
	MemType MemType  `ref:"mem_type"`
	DAddr   DPAAddr  `ref:"daddr"`
	HAddr   HostAddr `ref:"haddr"`
}

// Validate reports every attribute that is wrong.
func (m *Mem) Validate() error {
	c := checks{of: "flexio_mem"}
	c.known("mem_type", m.MemType, m.MemType <= MemTypeHost)
	if m.DAddr != 0 && m.MemType != MemTypeDPA {
		c.refuse("daddr", "is of DPA memory only, and mem_type is %s", m.MemType)
	}
	if m.HAddr != 0 && m.MemType != MemTypeHost {
		c.refuse("haddr", "is of host memory only, and mem_type is %s", m.MemType)
	}
	return c.err()
}

// HeapMemInfo is flexio_heap_mem_info: the SDK's description of the heap of a process, in the memory of the DPA.
type HeapMemInfo struct {
	BaseAddr  DPAAddr `ref:"base_addr"`
	Size      uint64  `ref:"size"` // in bytes, like the next two
	Requested uint64  `ref:"requested"`
	Allocated uint64  `ref:"allocated"`
}

// Validate reports values that are impossible for a heap.
func (h *HeapMemInfo) Validate() error {
	c := checks{of: "flexio_heap_mem_info"}
	h.check(&c)
	return c.err()
}

func (h *HeapMemInfo) check(c *checks) {
	if h.Size > math.MaxUint64-uint64(h.BaseAddr) {
		c.refuse("size", "%d bytes from %#x on go beyond the address space", h.Size, uint64(h.BaseAddr))
	}
	if h.Allocated > h.Size {
		c.refuse("allocated", "%d bytes of a heap of %d", h.Allocated, h.Size)
	}
	if h.Requested > h.Allocated {
		c.refuse("requested", "%d bytes, more than the %d allocated for them", h.Requested, h.Allocated)
	}
}

// offset returns the offset of an address in the heap. ok is false unless all of the n bytes there are in the heap.
// For an address before the heap, the difference wraps around to a number above its size.
func (h *HeapMemInfo) offset(at DPAAddr, n uint64) (offset uint64, ok bool) {
	offset = uint64(at - h.BaseAddr)
	return offset, offset <= h.Size && n <= h.Size-offset
}

// MKeyAttr is flexio_mkey_attr: the attributes of a new MKey.
type MKeyAttr struct {
	PD     *Object `ref:"pd"`
	DAddr  DPAAddr `ref:"daddr"`
	Len    uint64  `ref:"len"` // bytes
	Access Access  `ref:"access"`
}

// Validate reports every attribute that is wrong.
func (a *MKeyAttr) Validate() error {
	c := checks{of: "flexio_mkey_attr"}
	if a.PD == nil {
		c.refuse("pd", "an MKey belongs to a protection domain")
	}
	if a.DAddr == 0 {
		c.refuse("daddr", "no DPA address")
	}
	if a.Len == 0 || a.Len > math.MaxUint64-uint64(a.DAddr) {
		c.refuse("len", "%d bytes at %#x are no memory", a.Len, uint64(a.DAddr))
	}
	if extra := a.Access &^ (AccessRemoteWrite | AccessLocalWrite); extra != 0 {
		c.refuse("access", "%#x: an MKey takes IBV_ACCESS_REMOTE_WRITE and IBV_ACCESS_LOCAL_WRITE", uint32(a.Access))
	}
	return c.err()
}
