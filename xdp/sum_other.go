//go:build !amd64

package xdp

const canSum = false // callers check it before they call these

func sumSlots(*uint64, uintptr, uintptr, uintptr, *sums, *Pair) uint64       { panic("unreachable") }
func sumRows(*uint64, uintptr, uintptr, uintptr, *sums, *Row, int64) uintptr { panic("unreachable") }
func addMarks([]uint32, *uint32, uintptr)                                    { panic("unreachable") }
