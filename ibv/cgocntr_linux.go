//go:build cgo

package ibv

/*
#cgo noescape ft_read_comp_cntr
#cgo nocallback ft_read_comp_cntr
#include "verbs_linux.h"
*/
import "C"

import "syscall"

func (v *cVerbs) queryCompCntrCaps(ctx handle) (CompCntrCaps, syscall.Errno) {
	var c C.struct_ibv_comp_cntr_caps
	errno := C.ft_query_comp_cntr_caps(v.t, C.uintptr_t(ctx), &c)
	return CompCntrCaps{
		MaxValue:             uint64(c.max_value),
		MaxCounters:          uint32(c.max_counters),
		SupportedQPAttachOps: CompCntrOps(c.supported_qp_attach_ops),
	}, syscall.Errno(errno)
}

func (v *cVerbs) hasCompCntrs() bool { return C.ft_has_comp_cntrs(v.t) != 0 }

func (v *cVerbs) createCompCntr(ctx handle, compMask uint32, typ CompCntrType, flags uint32) (handle, syscall.Errno) {
	var cntr C.uintptr_t
	errno := C.ft_create_comp_cntr(v.t, C.uintptr_t(ctx), C.uint32_t(compMask), C.uint32_t(typ), C.uint32_t(flags), &cntr)
	return handle(cntr), syscall.Errno(errno)
}

func (v *cVerbs) destroyCompCntr(cntr handle) syscall.Errno {
	return syscall.Errno(C.ft_destroy_comp_cntr(v.t, C.uintptr_t(cntr)))
}

// cWord converts word into the constant of our C code.
func cWord(word compCntrWord) C.enum_ft_word {
	if word == wordErr {
		return C.FT_ERR
	}
	return C.FT_COMP
}

func (v *cVerbs) setCompCntr(cntr handle, word compCntrWord, value uint64) syscall.Errno {
	return syscall.Errno(C.ft_set_comp_cntr(v.t, C.uintptr_t(cntr), cWord(word), C.uint64_t(value)))
}

func (v *cVerbs) incCompCntr(cntr handle, word compCntrWord, amount uint64) syscall.Errno {
	return syscall.Errno(C.ft_inc_comp_cntr(v.t, C.uintptr_t(cntr), cWord(word), C.uint64_t(amount)))
}

func (v *cVerbs) readCompCntr(cntr handle, word compCntrWord) (uint64, syscall.Errno) {
	var value C.uint64_t
	errno := C.ft_read_comp_cntr(v.t, C.uintptr_t(cntr), cWord(word), &value)
	return uint64(value), syscall.Errno(errno)
}

func (v *cVerbs) attachCompCntr(qp, cntr handle, compMask uint32, ops CompCntrOps) syscall.Errno {
	return syscall.Errno(C.ft_attach_comp_cntr(v.t, C.uintptr_t(qp), C.uintptr_t(cntr), C.uint32_t(compMask), C.uint32_t(ops)))
}
