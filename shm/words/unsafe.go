package words

import "unsafe"

// overlay returns the words at the beginning of b, which is mapped.
func overlay(b []byte) *[2]uint64 {
	_ = b[15]
	return (*[2]uint64)(unsafe.Pointer(&b[0]))
}
