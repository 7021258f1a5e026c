package flexio

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

// CQPlacement adds to the attributes of a CQ what the SDK's library knows itself: objects of the process and
// of the device.
type CQPlacement struct {
	// EQN is the event queue of a CQ with element type none. The device requires one even then.
	EQN uint32

	// The process's heap in the memory of the DPA has HeapSize bytes from the DPA address HeapBase on, and a
	// umem. The command contains offsets in this umem instead of DPA addresses. For a queue of a program without
	// a DPA, whose doorbell record is in a umem of the host, give this umem, and any HeapBase but 0.
	HeapBase, HeapSize uint64
	HeapUMEMID         uint32
}

const opCreateCQ = 0x400 // MLX5_CMD_OP_CREATE_CQ

// CreateCQ turns flexio_cq_attr into the device's command CREATE_CQ, mlx5_ifc_create_cq_in_bits, for a CQ with its ring
// and doorbell record in umems. Pass the 272 bytes to mlx5dv_devx_obj_create. It returns an [AttrError] for each
// attribute refused by [Validate], and for DPA addresses outside the heap.
//
// Package ibv makes the completion queues of the host with it. Note that no device has seen the command yet. The bits
// come from public headers and from a device's own output. But the SDK's library, which is not public, decides which
// attribute sets which bits, so we inferred a part of this: see docs/flexio.md. no_arm and uar_base_addr are not in the
// command, because a doorbell arms the CQ after its creation.
func CreateCQ(attr Values, p CQPlacement) ([]byte, error) {
	c := checks{of: cqAttr}
	a := given{c.check(cqAttr, attr), attr}
	if err := c.err(); err != nil {
		return nil, err
	}

	depth := a.num("log_cq_depth")
	compression := a.num("cqe_comp_type")
	format := a.num("cqe_comp_format")
	context := Values{
		"cc":                      a.num("cc"),
		"oi":                      a.num("overrun_ignore"),
		"always_armed_cq":         a.num("always_armed"),
		"log_cq_size":             depth,
		"uar_page":                a.num("uar_id"),
		"cq_period_mode":          a.num("cq_period_mode"),
		"cq_period":               a.num("cq_period"),
		"cq_max_count":            a.num("cq_max_count"),
		"cqe_comp_en":             compression != uint64(Uncompressed),
		"cqe_comp_layout":         compression == uint64(Enhanced),
		"mini_cqe_res_format":     format & 3,
		"mini_cqe_res_format_ext": format >> 2,
	}
	setElement(a, p, context)

	// The doorbell record is always in the umem of the heap. The ring may be in one of the host.
	context["dbr_umem_valid"] = true
	context["dbr_umem_id"] = p.HeapUMEMID
	context["dbr_addr"] = p.offset(&c, "cq_dbr_daddr", a.num("cq_dbr_daddr"), dbrSize)

	in := Values{"opcode": opCreateCQ, "cq_context": context, "cq_umem_valid": true}
	ring := a.inner("cq_ring_qmem")
	if ring.num("memtype") == memHost {
		in["cq_umem_id"] = ring.num("umem_id")
		in["cq_umem_offset"] = ring.num("humem_offset")
	} else {
		in["cq_umem_id"] = p.HeapUMEMID
		in["cq_umem_offset"] = p.offset(&c, "cq_ring_qmem.daddr", ring.num("daddr"), 64<<depth)
	}
	if err := c.err(); err != nil {
		return nil, err
	}
	return Append(nil, createCQIn, in)
}

// setElement sets the receiver of the CQ's events. The SDK's element types with up to three bits are the device's
// types for elements other than ordinary EQs. The rest are ordinary EQs.
func setElement(a given, p CQPlacement, context Values) {
	element := a.num("element_type")
	switch element {
	case elementThread:
		context["c_eqn"] = a.num("thread")
	case elementEQ, elementEmulatedEQ:
		context["c_eqn"] = a.num("emulated_eqn")
	case elementNone:
		context["c_eqn"] = p.EQN
	}
	if element < 1<<3 {
		context["ext_element"] = true
		context["ext_element_type"] = element
	}
}

// offset returns the offset of an address in the heap, and refuses the field unless all of the n bytes there are in it.
// For an address before the heap, the difference wraps around to a number above its size.
func (p CQPlacement) offset(c *checks, field string, at, n uint64) uint64 {
	offset := at - p.HeapBase
	if offset > p.HeapSize || n > p.HeapSize-offset {
		c.refuse(field, "%d bytes at %#x are not in the heap of %d bytes at %#x", n, at, p.HeapSize, p.HeapBase)
	}
	return offset
}
