package flexio

import (
	"encoding/binary"
	"sync/atomic"
	"unsafe"
)

// aligned reports whether mem begins at a multiple of a CQE's 64 bytes, so that
// no load of an aligned word within an entry is split.
func aligned(mem []byte) bool {
	return uintptr(unsafe.Pointer(unsafe.SliceData(mem)))%64 == 0
}

// loadLast loads the last word of an entry, wqe_counter, signature and op_own, in
// one access with acquire order, and answers it as a number whose lowest byte is op_own.
// The device writes the entry by DMA, this word last; a plain load could be torn or
// come after those of the rest. e is an entry of NewRing's memory: 64 bytes, aligned.
func loadLast(e []byte) uint32 {
	word := atomic.LoadUint32((*uint32)(unsafe.Pointer(&e[60])))
	var b [4]byte
	binary.NativeEndian.PutUint32(b[:], word)
	return binary.BigEndian.Uint32(b[:])
}
