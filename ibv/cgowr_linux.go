//go:build cgo

package ibv

/*
#cgo noescape ft_post_send
#cgo nocallback ft_post_send
#cgo noescape ft_post_recv
#cgo nocallback ft_post_recv
#include "verbs_linux.h"
*/
import "C"

import "syscall"

// regMR registers memory. The library keeps the pointer after the call, so the memory must not be part
// of the Go heap: see MR.
func (v *cVerbs) regMR(pd handle, mem []byte, access AccessFlags) (region, syscall.Errno) {
	var mr C.struct_ft_mr
	errno := C.ft_reg_mr(v.t, C.uintptr_t(pd), bytePtr(mem), C.size_t(len(mem)), C.uint32_t(access), &mr)
	return region{
		mr:   handle(mr.mr),
		addr: uint64(mr.addr),
		lkey: uint32(mr.lkey),
		rkey: uint32(mr.rkey),
	}, syscall.Errno(errno)
}

func (v *cVerbs) deregMR(mr handle) syscall.Errno {
	return syscall.Errno(C.ft_dereg_mr(v.t, C.uintptr_t(mr)))
}

func (v *cVerbs) createAH(pd handle, a *AHAttr) (handle, syscall.Errno) {
	var ah C.uintptr_t
	c := cAHAttr(a)
	errno := C.ft_create_ah(v.t, C.uintptr_t(pd), &c, &ah)
	return handle(ah), syscall.Errno(errno)
}

func (v *cVerbs) destroyAH(ah handle) syscall.Errno {
	return syscall.Errno(C.ft_destroy_ah(v.t, C.uintptr_t(ah)))
}

func cSGE(s SGE) C.struct_ibv_sge {
	return C.struct_ibv_sge{addr: C.uint64_t(s.Addr), length: C.uint32_t(s.Length), lkey: C.uint32_t(s.LKey)}
}

func (v *cVerbs) postSend(qp, ah handle, wrs []SendWR) (int, syscall.Errno) {
	var batch [postBatch]C.struct_ft_send_wr
	for i := range wrs {
		w := &wrs[i]
		batch[i] = C.struct_ft_send_wr{
			wr_id:       C.uint64_t(w.WRID),
			sge:         cSGE(w.SGE),
			opcode:      C.uint32_t(w.Opcode),
			flags:       C.uint32_t(w.Flags),
			imm:         C.uint32_t(w.Imm),
			remote_addr: C.uint64_t(w.RemoteAddr),
			rkey:        C.uint32_t(w.RKey),
			remote_qpn:  C.uint32_t(w.RemoteQPN),
			remote_qkey: C.uint32_t(w.RemoteQKey),
		}
	}

	var posted C.int
	errno := C.ft_post_send(C.uintptr_t(qp), C.uintptr_t(ah), &batch[0], C.int(len(wrs)), &posted)
	return int(posted), syscall.Errno(errno)
}

func (v *cVerbs) postRecv(qp handle, wrs []RecvWR) (int, syscall.Errno) {
	var batch [postBatch]C.struct_ft_recv_wr
	for i := range wrs {
		batch[i] = C.struct_ft_recv_wr{wr_id: C.uint64_t(wrs[i].WRID), sge: cSGE(wrs[i].SGE)}
	}

	var posted C.int
	errno := C.ft_post_recv(C.uintptr_t(qp), &batch[0], C.int(len(wrs)), &posted)
	return int(posted), syscall.Errno(errno)
}

// The arrays here and in wr_linux.c must have the same length. Otherwise one of the differences is
// negative, which does not compile as a uint.
const _ = uint(postBatch-C.FT_BATCH) + uint(C.FT_BATCH-postBatch)
