package flexio

import "math"

// MemType says whose memory it is (enum flexio_memtype).
type MemType uint8

// The owners of memory.
const (
	MemTypeDPA  MemType = 0
	MemTypeHost MemType = 1
)

func (t MemType) String() string {
	return name(map[MemType]string{MemTypeDPA: "FLEXIO_MEMTYPE_DPA", MemTypeHost: "FLEXIO_MEMTYPE_HOST"}, "memory type", t)
}

// QMem is flexio_qmem: where a queue lies. One of DAddr and HUMEMOffset is used.
type QMem struct {
	MemType     MemType `ref:"memtype"`
	DAddr       DPAAddr `ref:"daddr"`        // of DPA memory
	HUMEMOffset uint64  `ref:"humem_offset"` // of host memory: bytes from the beginning of the umem
	UMEMID      uint32  `ref:"umem_id"`
}

// Validate reports every attribute that is wrong.
func (m *QMem) Validate() error {
	c := checks{of: "flexio_qmem"}
	m.check(&c, 1)
	return c.err()
}

// check checks memory that begins at a multiple of align.
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

// unset reports whether no field was set.
func (m *QMem) unset() bool { return *m == QMem{} }

// The device's alignment of queues: a ring begins at a multiple of its entries' 64 bytes, a
// doorbell record at a multiple of 8 bytes.
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

// HeapMemInfo is flexio_heap_mem_info: the SDK's description of a process's heap in the memory of
// the DPA.
type HeapMemInfo struct {
	BaseAddr  DPAAddr `ref:"base_addr"`
	Size      uint64  `ref:"size"` // all in bytes
	Requested uint64  `ref:"requested"`
	Allocated uint64  `ref:"allocated"`
}

// Validate reports values that no heap can have.
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

// offset returns how far n bytes at an address lie from the heap's beginning, and whether they lie
// in the heap. An address before the heap wraps around to more than its size.
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
