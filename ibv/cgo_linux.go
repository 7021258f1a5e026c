//go:build cgo

package ibv

// Only this file uses unsafe, for three things: to free C strings, to pass the first element of a slice
// to a call that keeps no pointer to it, and to give the ring of a completion queue a length. Go
// dereferences no other C memory.

/*
#cgo CFLAGS: -std=gnu11 -Wall -Wextra
#cgo LDFLAGS: -ldl
#cgo noescape ft_poll_cq
#cgo nocallback ft_poll_cq
#cgo noescape ft_read_counters
#cgo nocallback ft_read_counters
#include <stdlib.h>
#include "verbs_linux.h"
*/
import "C"

import (
	"encoding/binary"
	"math"
	"syscall"
	"unsafe"

	_ "github.com/flowtally/flowtally/ibv/internal/abi" // the header is an input of this package's build
	"github.com/flowtally/flowtally/probe"
)

var libVerbs = shared{"libibverbs.so.1", "install libibverbs1 (Debian, Ubuntu, SUSE) or libibverbs (Fedora, RHEL)"}

// cVerbs is an open libibverbs.
type cVerbs struct{ t *C.struct_ft_verbs }

func loadVerbs(path string) (verbs, error) {
	path, fix, err := libVerbs.at(path)
	if err != nil {
		return nil, err
	}
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	var why [512]C.char
	t := C.ft_load(name, &why[0], C.size_t(len(why)))
	if t == nil {
		return nil, &probe.UnsupportedError{Feature: "RDMA verbs", Object: "libibverbs", Reason: C.GoString(&why[0]), Fix: fix}
	}
	return &cVerbs{t}, nil
}

func (v *cVerbs) path() string     { return C.GoString(C.ft_path(v.t)) }
func (v *cVerbs) unload(stay bool) { C.ft_unload(v.t, cBool(stay)) }

func (v *cVerbs) has(symbol string) bool {
	name := C.CString(symbol)
	defer C.free(unsafe.Pointer(name))
	return C.ft_has(v.t, name) != 0
}

// cMemory returns n bytes of the library's memory at p. Do not use the slice after the library has
// destroyed the object with this memory. A slice of bytes needs no alignment.
func cMemory(p unsafe.Pointer, n int) []byte { return unsafe.Slice((*byte)(p), n) }

func (v *cVerbs) devices() ([]Device, syscall.Errno) {
	for n := 16; ; {
		list := make([]C.struct_ft_device, n)
		var found C.int
		if errno := C.ft_devices(v.t, &list[0], C.int(n), &found); errno != 0 {
			return nil, syscall.Errno(errno)
		}
		if int(found) > n { // try again with a longer array; the list may grow once more meanwhile
			n = int(found)
			continue
		}

		devices := make([]Device, found)
		for i := range devices {
			d := &list[i]
			devices[i] = Device{
				Name:      C.GoString(&d.name[0]),
				SysfsPath: C.GoString(&d.ibdev_path[0]),
				GUID:      uint64(d.guid),
				NodeType:  NodeType(d.node_type),
				Transport: TransportType(d.transport_type),
			}
		}
		return devices, 0
	}
}

func (v *cVerbs) openDevice(device string) (handle, int, syscall.Errno) {
	name := C.CString(device)
	defer C.free(unsafe.Pointer(name))
	var ctx C.uintptr_t
	var fd C.int
	errno := C.ft_open_device(v.t, name, &ctx, &fd)
	return handle(ctx), int(fd), syscall.Errno(errno)
}

func (v *cVerbs) closeDevice(ctx handle) syscall.Errno {
	return syscall.Errno(C.ft_close_device(v.t, C.uintptr_t(ctx)))
}

func (v *cVerbs) sysfsPath(ctx handle) string {
	return C.GoString(C.ft_ibdev_path(C.uintptr_t(ctx)))
}

// hostOrder converts a be64 of C into host order.
func hostOrder(be C.uint64_t) uint64 {
	var b [8]byte
	binary.NativeEndian.PutUint64(b[:], uint64(be))
	return binary.BigEndian.Uint64(b[:])
}

func (v *cVerbs) queryDevice(ctx handle, a *DeviceAttr) syscall.Errno {
	var c C.struct_ibv_device_attr
	if errno := C.ft_query_device(v.t, C.uintptr_t(ctx), &c); errno != 0 {
		return syscall.Errno(errno)
	}
	c.fw_ver[len(c.fw_ver)-1] = 0 // a driver may fill the whole array

	*a = DeviceAttr{
		FWVer:          C.GoString(&c.fw_ver[0]),
		NodeGUID:       hostOrder(c.node_guid),
		SysImageGUID:   hostOrder(c.sys_image_guid),
		MaxMRSize:      uint64(c.max_mr_size),
		PageSizeCap:    uint64(c.page_size_cap),
		VendorID:       uint32(c.vendor_id),
		VendorPartID:   uint32(c.vendor_part_id),
		HWVer:          uint32(c.hw_ver),
		DeviceCapFlags: DeviceCapFlags(c.device_cap_flags),
		MaxQP:          int(c.max_qp),
		MaxQPWR:        int(c.max_qp_wr),
		MaxSGE:         int(c.max_sge),
		MaxCQ:          int(c.max_cq),
		MaxCQE:         int(c.max_cqe),
		MaxMR:          int(c.max_mr),
		MaxPD:          int(c.max_pd),
		MaxQPRdAtom:    int(c.max_qp_rd_atom),
		MaxRawEthyQP:   int(c.max_raw_ethy_qp),
		PhysPortCnt:    uint8(c.phys_port_cnt),
	}
	return 0
}

func (v *cVerbs) queryPort(ctx handle, port uint8, a *PortAttr) syscall.Errno {
	var c C.struct_ibv_port_attr
	if errno := C.ft_query_port(v.t, C.uintptr_t(ctx), C.uint8_t(port), &c); errno != 0 {
		return syscall.Errno(errno)
	}
	*a = PortAttr{
		State:         PortState(c.state),
		MaxMTU:        MTU(c.max_mtu),
		ActiveMTU:     MTU(c.active_mtu),
		GIDTblLen:     int(c.gid_tbl_len),
		PortCapFlags:  uint32(c.port_cap_flags),
		MaxMsgSz:      uint32(c.max_msg_sz),
		BadPKeyCntr:   uint32(c.bad_pkey_cntr),
		QKeyViolCntr:  uint32(c.qkey_viol_cntr),
		PKeyTblLen:    uint16(c.pkey_tbl_len),
		LID:           uint16(c.lid),
		SMLID:         uint16(c.sm_lid),
		LMC:           uint8(c.lmc),
		MaxVLNum:      uint8(c.max_vl_num),
		SMSL:          uint8(c.sm_sl),
		SubnetTimeout: uint8(c.subnet_timeout),
		InitTypeReply: uint8(c.init_type_reply),
		ActiveWidth:   uint8(c.active_width),
		ActiveSpeed:   uint8(c.active_speed),
		PhysState:     uint8(c.phys_state),
		LinkLayer:     LinkLayer(c.link_layer),
		Flags:         uint8(c.flags),
		PortCapFlags2: uint16(c.port_cap_flags2),
	}
	return 0
}

func (v *cVerbs) queryGID(ctx handle, port uint8, index int, gid *GID) syscall.Errno {
	if index < 0 || index > math.MaxInt32 {
		return syscall.EINVAL
	}
	return syscall.Errno(C.ft_query_gid(v.t, C.uintptr_t(ctx), C.uint8_t(port), C.int(index), bytePtr(gid[:])))
}

func (v *cVerbs) getEvent(ctx handle) (event, syscall.Errno) {
	var typ C.uint32_t
	var element C.uint64_t
	errno := C.ft_get_event(v.t, C.uintptr_t(ctx), &typ, &element)
	return event{EventType(typ), uint64(element)}, syscall.Errno(errno)
}

func (v *cVerbs) ackEvent(e event) { C.ft_ack_event(v.t, C.uint32_t(e.typ), C.uint64_t(e.element)) }

func (v *cVerbs) allocPD(ctx handle) (handle, syscall.Errno) {
	var pd C.uintptr_t
	errno := C.ft_alloc_pd(v.t, C.uintptr_t(ctx), &pd)
	return handle(pd), syscall.Errno(errno)
}

func (v *cVerbs) deallocPD(pd handle) syscall.Errno {
	return syscall.Errno(C.ft_dealloc_pd(v.t, C.uintptr_t(pd)))
}

func (v *cVerbs) createCQ(ctx handle, o CQOptions) (handle, int, syscall.Errno) {
	if o.CQE < 1 || o.CQE > math.MaxInt32 || o.CompVector < 0 || o.CompVector > math.MaxInt32 {
		return 0, 0, syscall.EINVAL
	}
	var cq C.uintptr_t
	var got C.int
	errno := C.ft_create_cq(v.t, C.uintptr_t(ctx), C.int(o.CQE), C.int(o.CompVector), &cq, &got)
	return handle(cq), int(got), syscall.Errno(errno)
}

func (v *cVerbs) pollCQ(cq handle, dst []WC) (int, syscall.Errno) {
	var batch [16]C.struct_ibv_wc // on the stack, because Poll must not allocate
	for n := 0; n < len(dst); {
		want := min(len(batch), len(dst)-n)
		var got C.int
		if errno := C.ft_poll_cq(C.uintptr_t(cq), C.int(want), &batch[0], &got); errno != 0 {
			return n, syscall.Errno(errno)
		}
		for i := range batch[:got] {
			dst[n] = goWC(&batch[i])
			n++
		}
		if int(got) < want {
			return n, 0
		}
	}
	return len(dst), 0
}

func goWC(c *C.struct_ibv_wc) WC {
	var imm [4]byte
	binary.NativeEndian.PutUint32(imm[:], uint32(c.imm_data))
	return WC{
		WRID:         uint64(c.wr_id),
		Status:       WCStatus(c.status),
		Opcode:       WCOpcode(c.opcode),
		VendorErr:    uint32(c.vendor_err),
		ByteLen:      uint32(c.byte_len),
		ImmData:      binary.BigEndian.Uint32(imm[:]),
		QPNum:        uint32(c.qp_num),
		SrcQP:        uint32(c.src_qp),
		Flags:        uint32(c.wc_flags),
		PKeyIndex:    uint16(c.pkey_index),
		SLID:         uint16(c.slid),
		SL:           uint8(c.sl),
		DLIDPathBits: uint8(c.dlid_path_bits),
	}
}

func (v *cVerbs) destroyCQ(cq handle) syscall.Errno {
	return syscall.Errno(C.ft_destroy_cq(v.t, C.uintptr_t(cq)))
}

func (v *cVerbs) createQP(pd, sendCQ, recvCQ handle, o *QPOptions) (handle, uint32, syscall.Errno) {
	var qp C.uintptr_t
	var number C.uint32_t
	c := cQPCap(o.Cap)
	errno := C.ft_create_qp(v.t, C.uintptr_t(pd), C.uintptr_t(sendCQ), C.uintptr_t(recvCQ), C.uint32_t(o.Type), &c, cBool(o.SignalAll), &qp, &number)
	return handle(qp), uint32(number), syscall.Errno(errno)
}

func (v *cVerbs) destroyQP(qp handle) syscall.Errno {
	return syscall.Errno(C.ft_destroy_qp(v.t, C.uintptr_t(qp)))
}

func (v *cVerbs) createFlow(qp handle, blob []byte) (handle, syscall.Errno) {
	var flow C.uintptr_t
	errno := C.ft_create_flow(C.uintptr_t(qp), unsafe.Pointer(unsafe.SliceData(blob)), C.size_t(len(blob)), &flow)
	return handle(flow), syscall.Errno(errno)
}

func (v *cVerbs) destroyFlow(flow handle) syscall.Errno {
	return syscall.Errno(C.ft_destroy_flow(C.uintptr_t(flow)))
}

func (v *cVerbs) createCounters(ctx handle, compMask uint32) (handle, syscall.Errno) {
	var counters C.uintptr_t
	errno := C.ft_create_counters(C.uintptr_t(ctx), C.uint32_t(compMask), &counters)
	return handle(counters), syscall.Errno(errno)
}

func (v *cVerbs) attachCounters(counters handle, a CounterAttach, flow handle, compMask uint32) syscall.Errno {
	return syscall.Errno(C.ft_attach_counters(C.uintptr_t(counters), C.uint32_t(a.Counter), C.uint32_t(a.Index), C.uint32_t(compMask), C.uintptr_t(flow)))
}

func (v *cVerbs) readCounters(counters handle, dst []uint64, flags ReadFlags) syscall.Errno {
	if len(dst) > math.MaxUint32 {
		dst = dst[:math.MaxUint32]
	}
	values := (*C.uint64_t)(unsafe.SliceData(dst))
	return syscall.Errno(C.ft_read_counters(C.uintptr_t(counters), values, C.uint32_t(len(dst)), C.uint32_t(flags)))
}

func (v *cVerbs) destroyCounters(counters handle) syscall.Errno {
	return syscall.Errno(C.ft_destroy_counters(C.uintptr_t(counters)))
}
