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

// loadLast loads the last word of an entry, wqe_counter, signature and op_own, in one access with
// acquire order, and returns it as a number whose lowest byte is op_own. The device writes the
// entry by DMA, this word last; a plain load could be torn or come after the loads of the rest.
func loadLast(e []byte) uint32 { return loadWord(e, 60) }

// loadSyndromes loads the word of hw_err_syndrome, vendor_err_synd and syndrome,
// the last in the lowest byte.
func loadSyndromes(e []byte) uint32 { return loadWord(e, 52) }

// loadWord loads the big-endian word at offset at, a multiple of 4. e is an entry
// in memory that aligned has accepted: 64 bytes, at a multiple of 64.
func loadWord(e []byte, at int) uint32 {
	word := atomic.LoadUint32((*uint32)(unsafe.Pointer(&e[at])))
	var b [4]byte
	binary.NativeEndian.PutUint32(b[:], word)
	return binary.BigEndian.Uint32(b[:])
}
