//go:build cgo

package ibv

// This file calls DevX and mlx5's direct verbs. It needs no unsafe: buffers cross as pointers to their first
// byte, and objects as integers.

/*
#cgo noescape ft_mlx5_doorbell
#cgo nocallback ft_mlx5_doorbell
#include "mlx5_linux.h"
*/
import "C"

import (
	"syscall"

	"github.com/flowtally/flowtally/probe"
)

var libMLX5 = shared{"libmlx5.so.1", "install ibverbs-providers (Debian, Ubuntu) or libibverbs (Fedora, RHEL)"}

// cMLX5 is an open libmlx5.
type cMLX5 struct{ t *C.struct_ft_mlx5 }

// loadMLX5 opens the library for a feature. libibverbs may have loaded the same file as the device's provider.
// The loader recognizes the file, and does not load it twice.
func loadMLX5(feature string, o Options) (mlx5, error) {
	path, fix, err := libMLX5.at(o.MLX5)
	if err != nil {
		return nil, err
	}
	if o.MLX5 == "" {
		fix = o.fix("rdma.mlx5", libMLX5.soname, fix)
	}
	var why [512]C.char
	t := C.ft_mlx5_load(bytePtr(append([]byte(path), 0)), &why[0], C.size_t(len(why)))
	if t == nil {
		return nil, &probe.UnsupportedError{Feature: feature, Object: "libmlx5", Reason: C.GoString(&why[0]), Fix: fix}
	}
	return &cMLX5{t}, nil
}

// bytePtr returns a pointer to the first byte of b, which must not be empty.
func bytePtr(b []byte) *C.uint8_t { return (*C.uint8_t)(&b[0]) }

func (m *cMLX5) unload()       { C.ft_mlx5_unload(m.t) }
func (m *cMLX5) offsets() bool { return m.t.create_flow_60 != nil }

func (m *cMLX5) supported(ctx handle) bool {
	return C.ft_mlx5_supported(m.t, C.uintptr_t(ctx)) != 0
}

func (m *cMLX5) open(ctx handle) (handle, syscall.Errno) {
	var h C.uintptr_t
	errno := C.ft_mlx5_open(m.t, C.uintptr_t(ctx), &h)
	return handle(h), syscall.Errno(errno)
}

func (m *cMLX5) generalCmd(ctx handle, in, out []byte) syscall.Errno {
	return syscall.Errno(C.ft_mlx5_general_cmd(m.t, C.uintptr_t(ctx), bytePtr(in), C.size_t(len(in)), bytePtr(out), C.size_t(len(out))))
}

func (m *cMLX5) createObject(ctx handle, in, out []byte) (handle, syscall.Errno) {
	var h C.uintptr_t
	errno := C.ft_mlx5_obj_create(m.t, C.uintptr_t(ctx), bytePtr(in), C.size_t(len(in)), bytePtr(out), C.size_t(len(out)), &h)
	return handle(h), syscall.Errno(errno)
}

func (m *cMLX5) queryObject(obj handle, in, out []byte) syscall.Errno {
	return syscall.Errno(C.ft_mlx5_obj_query(m.t, C.uintptr_t(obj), bytePtr(in), C.size_t(len(in)), bytePtr(out), C.size_t(len(out))))
}

func (m *cMLX5) destroyObject(obj handle) syscall.Errno {
	return syscall.Errno(C.ft_mlx5_obj_destroy(m.t, C.uintptr_t(obj)))
}

func (m *cMLX5) createCmdComp(ctx handle) (handle, int, syscall.Errno) {
	var h C.uintptr_t
	var fd C.int
	errno := C.ft_mlx5_create_cmd_comp(m.t, C.uintptr_t(ctx), &h, &fd)
	return handle(h), int(fd), syscall.Errno(errno)
}

func (m *cMLX5) destroyCmdComp(comp handle) {
	C.ft_mlx5_destroy_cmd_comp(m.t, C.uintptr_t(comp))
}

func (m *cMLX5) queryAsync(obj handle, in []byte, outlen int, wrID uint64, comp handle) syscall.Errno {
	return syscall.Errno(C.ft_mlx5_obj_query_async(m.t, C.uintptr_t(obj), bytePtr(in), C.size_t(len(in)), C.size_t(outlen),
		C.uint64_t(wrID), C.uintptr_t(comp)))
}

func (m *cMLX5) getAsync(comp handle, out []byte) (uint64, syscall.Errno) {
	var wrID C.uint64_t
	errno := C.ft_mlx5_get_async_cmd_comp(m.t, C.uintptr_t(comp), &wrID, bytePtr(out), C.size_t(len(out)))
	return uint64(wrID), syscall.Errno(errno)
}

func (m *cMLX5) createMatcher(ctx handle, mask []byte, criteria uint8, priority uint16, flags FlowFlags) (handle, syscall.Errno) {
	var h C.uintptr_t
	errno := C.ft_mlx5_create_matcher(m.t, C.uintptr_t(ctx), bytePtr(mask), C.size_t(len(mask)), C.uint8_t(criteria),
		C.uint16_t(priority), C.uint32_t(flags), &h)
	return handle(h), syscall.Errno(errno)
}

func (m *cMLX5) destroyMatcher(matcher handle) syscall.Errno {
	return syscall.Errno(C.ft_mlx5_destroy_matcher(m.t, C.uintptr_t(matcher)))
}

func (m *cMLX5) createFlow(matcher handle, value []byte, counters handle, offset uint32, defaultMiss, drop bool) (handle, syscall.Errno) {
	var h C.uintptr_t
	errno := C.ft_mlx5_create_flow(m.t, C.uintptr_t(matcher), bytePtr(value), C.size_t(len(value)), C.uintptr_t(counters),
		C.uint32_t(offset), cBool(defaultMiss), cBool(drop), &h)
	return handle(h), syscall.Errno(errno)
}

func (m *cMLX5) createCQ(ctx handle, o MLX5CQOptions) (handle, int, syscall.Errno) {
	var h C.uintptr_t
	var got C.int
	errno := C.ft_mlx5_create_cq(m.t, C.uintptr_t(ctx), C.int(o.CQE), C.int(o.CompVector), C.int(o.EntrySize), C.int(o.Compression), &h, &got)
	return handle(h), int(got), syscall.Errno(errno)
}

func (m *cMLX5) cqRing(cq handle) (MLX5CQ, syscall.Errno) {
	var c C.struct_mlx5dv_cq
	if errno := C.ft_mlx5_cq(m.t, C.uintptr_t(cq), &c); errno != 0 {
		return MLX5CQ{}, syscall.Errno(errno)
	}
	ring := MLX5CQ{
		DBRec:    (*uint32)(c.dbrec),
		CQN:      uint32(c.cqn),
		CQESize:  int(c.cqe_size),
		CQECount: int(c.cqe_cnt),
	}
	if c.buf == nil || !ring.sound() {
		return MLX5CQ{}, syscall.EPROTO
	}
	ring.Buf = cMemory(c.buf, ring.CQECount*ring.CQESize)
	return ring, 0
}

func (m *cMLX5) modifyObject(obj handle, in, out []byte) syscall.Errno {
	return syscall.Errno(C.ft_mlx5_obj_modify(m.t, C.uintptr_t(obj), bytePtr(in), C.size_t(len(in)), bytePtr(out), C.size_t(len(out))))
}

// regUMEM registers memory. The library keeps the pointer after the call, so the memory must not be part of the Go
// heap: see UMEM.
func (m *cMLX5) regUMEM(ctx handle, mem []byte, access AccessFlags) (handle, uint32, syscall.Errno) {
	var h C.uintptr_t
	var id C.uint32_t
	errno := C.ft_mlx5_umem_reg(m.t, C.uintptr_t(ctx), bytePtr(mem), C.size_t(len(mem)), C.uint32_t(access), &h, &id)
	return handle(h), uint32(id), syscall.Errno(errno)
}

func (m *cMLX5) deregUMEM(umem handle) syscall.Errno {
	return syscall.Errno(C.ft_mlx5_umem_dereg(m.t, C.uintptr_t(umem)))
}

func (m *cMLX5) allocUAR(ctx handle) (uar, register handle, page uint32, errno syscall.Errno) {
	var h, reg C.uintptr_t
	var id C.uint32_t
	e := C.ft_mlx5_alloc_uar(m.t, C.uintptr_t(ctx), &h, &reg, &id)
	return handle(h), handle(reg), uint32(id), syscall.Errno(e)
}

func (m *cMLX5) freeUAR(uar handle) { C.ft_mlx5_free_uar(m.t, C.uintptr_t(uar)) }

func (m *cMLX5) queryEQN(ctx handle, vector int) (uint32, syscall.Errno) {
	var eqn C.uint32_t
	errno := C.ft_mlx5_query_eqn(m.t, C.uintptr_t(ctx), C.uint32_t(vector), &eqn)
	return uint32(eqn), syscall.Errno(errno)
}

func (m *cMLX5) pdNumber(pd handle) (uint32, syscall.Errno) {
	var n C.uint32_t
	errno := C.ft_mlx5_pdn(m.t, C.uintptr_t(pd), &n)
	return uint32(n), syscall.Errno(errno)
}

func (m *cMLX5) nextHop(ah handle) (mac [6]byte, errno syscall.Errno) {
	e := C.ft_mlx5_rmac(m.t, C.uintptr_t(ah), bytePtr(mac[:]))
	return mac, syscall.Errno(e)
}

func (m *cMLX5) doorbell(record []byte, index uint32, register handle, wqe []byte) {
	C.ft_mlx5_doorbell(bytePtr(record), C.uint32_t(index), C.uintptr_t(register), bytePtr(wqe))
}
