package readrows

import (
	"sync/atomic"
	"unsafe"
)

// load32 loads the aligned word at an offset of b, as a reader of memory that another process writes does.
func load32(b []byte, at int) uint32 {
	_ = b[at+3]
	return atomic.LoadUint32((*uint32)(unsafe.Pointer(&b[at])))
}

// load64 loads the aligned word at an offset of b.
func load64(b []byte, at int) uint64 {
	_ = b[at+7]
	return atomic.LoadUint64((*uint64)(unsafe.Pointer(&b[at])))
}
