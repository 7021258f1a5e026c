//go:build !amd64

package xdp

const canSum = false

func sumSlots(*uint64, uintptr, uintptr, uintptr, *Pair, *Pair) uint64 {
	panic("xdp: sumSlots is not for this CPU")
}

func sumRows(*uint64, uintptr, uintptr, uintptr, *Pair, *Row, int64) uintptr {
	panic("xdp: sumRows is not for this CPU")
}

func addMarks([]uint32, *uint32, uintptr) {
	panic("xdp: addMarks is not for this CPU")
}
