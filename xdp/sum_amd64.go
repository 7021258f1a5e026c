package xdp

import "golang.org/x/sys/cpu"

// canSum is asked once: the CPU does not change.
var canSum = cpu.X86.HasAVX2

// sumSlots sums n counters, a multiple of 8 above 0, with adjacent ids over all CPUs, takes their bases off and stores
// them to dst. slots is the first counter's slot of CPU 0, aligned to 16 bytes; stride is the bytes from one CPU's
// slots to the next's.
//
// Every slot is loaded whole, by one aligned load of 16 bytes, which Intel and AMD guarantee to be one access on every
// CPU that has AVX. So it holds both words of one instant, before, between or after the two stores of an update, and
// only between them their low bytes disagree: no word has to be loaded twice. A result that is not 0 says that some
// slot was met between its stores; dst is worth nothing then.
//
//go:noescape
func sumSlots(slots *uint64, stride, cpus, n uintptr, base *sums, dst *Pair) (torn uint64)

// sumRows is sumSlots into rows, whose third word becomes at. n is a multiple of 4 above 0. It returns how many counters,
// a multiple of 4, are stored: the next eight, or four, hold a slot that was met between its stores.
//
//go:noescape
func sumRows(slots *uint64, stride, cpus, n uintptr, base *sums, dst *Row, at int64) (done uintptr)

// addMarks adds to dst, whose length is a multiple of 16 above 0, the marks of four CPUs, word by word. src is the first
// mark of the first of them, and stride the bytes from one CPU's marks to the next one's. This CPU keeps loads in their
// order, so that slots which are loaded afterwards have every update that dst has.
//
//go:noescape
func addMarks(dst []uint32, src *uint32, stride uintptr)
