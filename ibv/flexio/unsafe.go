package flexio

import (
	"encoding/binary"
	"sync/atomic"
	"unsafe"
)

// aligned reports whether mem begins at a multiple of 64 bytes, the size of a CQE. Then the words of an entry are
// aligned, and the CPU does not split their loads.
func aligned(mem []byte) bool {
	return uintptr(unsafe.Pointer(unsafe.SliceData(mem)))%64 == 0
}

// loadLast loads the last word of an entry, in one access with acquire order: wqe_counter, signature and, in the
// lowest byte, op_own. The device writes the entry by DMA, and this word last. A plain load could be torn, or move
// behind the loads of the rest.
func loadLast(e []byte) uint32 { return loadWord(e, 60) }

// loadSyndromes loads the word with hw_err_syndrome, vendor_err_synd and, in the lowest byte, syndrome.
func loadSyndromes(e []byte) uint32 { return loadWord(e, 52) }

// loadWord loads the big-endian word at offset at, which must be a multiple of 4. The memory of the entry e must have
// been accepted by aligned.
func loadWord(e []byte, at int) uint32 {
	word := atomic.LoadUint32((*uint32)(unsafe.Pointer(&e[at])))
	var b [4]byte
	binary.NativeEndian.PutUint32(b[:], word)
	return binary.BigEndian.Uint32(b[:])
}
