package xdp

import "golang.org/x/sys/cpu"

// canSum allows the functions below, which need AVX2.
var canSum = cpu.X86.HasAVX2

// sumSlots sums n counters with adjacent ids over all CPUs, subtracts their bases and stores the results to dst. n must be a positive
// multiple of 8. slots is the slot of the first counter on CPU 0, aligned to 16 bytes. stride is the distance between the slots of
// two CPUs in bytes.
//
// sumSlots loads each slot by one aligned load of 16 bytes. Intel and AMD guarantee that such a load is a single access on every CPU
// with AVX. So both words are from the same instant, and their low bytes differ only if that instant lies between the two stores of
// an update. Then torn is not 0, and the contents of dst are undefined.
//
//go:noescape
func sumSlots(slots *uint64, stride, cpus, n uintptr, base *sums, dst *Pair) (torn uint64)

// sumRows is sumSlots into rows, with at as their third word. n must be a positive multiple of 4. It returns the number of rows
// stored, a multiple of 4. If that is less than n, sumRows met a slot between its stores among the next four or eight counters.
//
//go:noescape
func sumRows(slots *uint64, stride, cpus, n uintptr, base *sums, dst *Row, at int64) (done uintptr)

// addMarks adds the marks of four CPUs to dst, word by word. The length of dst must be a positive multiple of 16. src is the first
// mark of the first CPU. stride is the distance between the marks of two CPUs in bytes. amd64 executes loads in order, so slots
// loaded afterwards have every update that dst has.
//
//go:noescape
func addMarks(dst []uint32, src *uint32, stride uintptr)
