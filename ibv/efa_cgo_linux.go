//go:build cgo

package ibv

// This file calls EFA's direct verbs. It needs no unsafe, for the reason in mlx5_cgo_linux.go.

// #include "efa_linux.h"
import "C"

import (
	"syscall"

	"github.com/flowtally/flowtally/probe"
)

var (
	libEFA    = shared{"libefa.so.1", "install libefa of rdma-core 65 or later (ibverbs-providers, or libibverbs), or of Amazon's driver"}
	libEFASRD = shared{"libefa.so.1", "install libefa of rdma-core 27 or later (ibverbs-providers, or libibverbs), or of Amazon's driver"}
)

// cEFA is an open libefa.
type cEFA struct{ t *C.struct_ft_efa }

// loadEFA opens a libefa with the feature: featureExternal or featureSRD. libibverbs may have loaded the
// same file as the device's provider. The loader recognizes the file, and does not load it twice.
func loadEFA(o Options, feature string) (efa, error) {
	from := libEFA
	if feature == featureSRD {
		from = libEFASRD
	}
	path, fix, err := from.at(o.EFA)
	if err != nil {
		return nil, err
	}
	if o.EFA == "" {
		fix = o.fix("rdma.efa", from.soname, fix)
	}
	var why [512]C.char
	t := C.ft_efa_load(bytePtr(append([]byte(path), 0)), cBool(feature == featureSRD), &why[0], C.size_t(len(why)))
	if t == nil {
		return nil, &probe.UnsupportedError{Feature: feature, Object: "libefa", Reason: C.GoString(&why[0]), Fix: fix}
	}
	return &cEFA{t}, nil
}

func (e *cEFA) unload() { C.ft_efa_unload(e.t) }

func (e *cEFA) createCompCntr(ctx handle, typ CompCntrType, mem CompCntrMemory) (handle, syscall.Errno) {
	var h C.uintptr_t
	errno := C.ft_efa_create_comp_cntr(e.t, C.uintptr_t(ctx), C.uint32_t(typ), wordPtr(mem.Comp), wordPtr(mem.Err), &h)
	return handle(h), syscall.Errno(errno)
}

// wordPtr returns a pointer to the word's first byte, or NULL for an empty word.
func wordPtr(word []byte) *C.uint8_t {
	if len(word) == 0 {
		return nil
	}
	return bytePtr(word)
}

func (e *cEFA) queryDevice(ctx handle) (EFAAttr, syscall.Errno) {
	var caps, size C.uint32_t
	errno := C.ft_efa_query_device(e.t, C.uintptr_t(ctx), &caps, &size)
	return EFAAttr{
		RDMARead:    caps&C.EFADV_DEVICE_ATTR_CAPS_RDMA_READ != 0,
		RDMAWrite:   caps&C.EFADV_DEVICE_ATTR_CAPS_RDMA_WRITE != 0,
		MaxRDMASize: uint32(size),
	}, syscall.Errno(errno)
}

func (e *cEFA) createSRD(ctx, pd, sendCQ, recvCQ handle, o *QPOptions) (handle, uint32, syscall.Errno) {
	var qp C.uintptr_t
	var number C.uint32_t
	caps := cQPCap(o.Cap)
	errno := C.ft_efa_create_srd(e.t, C.uintptr_t(ctx), C.uintptr_t(pd), C.uintptr_t(sendCQ), C.uintptr_t(recvCQ),
		&caps, cBool(o.SignalAll), &qp, &number)
	return handle(qp), uint32(number), syscall.Errno(errno)
}
