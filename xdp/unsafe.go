package xdp

import "unsafe"

// Offsets in bytes of the constants that functions load: in struct ft_config, and in its struct ft_tuple.
const (
	configMul  = int(unsafe.Offsetof(flowtallyFtConfig{}.Mul))
	tupleHead  = int(unsafe.Offsetof(flowtallyFtTuple{}.Id)) // id, flags and n
	tupleWords = int(unsafe.Offsetof(flowtallyFtTuple{}.Word))
	tupleSeed  = int(unsafe.Offsetof(flowtallyFtTuple{}.Seed))
	tupleMask  = int(unsafe.Offsetof(flowtallyFtTuple{}.Mask))
	tupleKey   = int(unsafe.Offsetof(flowtallyFtTuple{}.Key))
)

// tupleAt returns the offset of the constants of the mask at a place.
func tupleAt(place int) int {
	return int(unsafe.Offsetof(flowtallyFtConfig{}.Tuple)) + place*int(unsafe.Sizeof(flowtallyFtTuple{}))
}

// words views a key as 64-bit words. That is safe: the empty array of uint64 at the start of Headers aligns a Key, and a Key consists
// of integers only, so every pattern of bits is valid.
func (k *Key) words() *words { return (*words)(unsafe.Pointer(k)) }

// wordsOf views mapped memory as 64-bit words. mmap returns whole pages, so they are aligned. Callers must not use the words after
// they have unmapped the memory.
func wordsOf(b []byte) []uint64 {
	if len(b) < 8 {
		return nil
	}
	return unsafe.Slice((*uint64)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/8)
}

// marksOf views words as marks, two per word.
func marksOf(w []uint64) []uint32 {
	return unsafe.Slice((*uint32)(unsafe.Pointer(unsafe.SliceData(w))), len(w)*2)
}

// bytesOf views words as bytes.
func bytesOf(w []uint64) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(w))), len(w)*8)
}

// rowsOf views rows of another package as ours. Their types have the same fields.
func rowsOf[R ~struct {
	Packets, Bytes uint64
	SampledAt      int64
}](rows []R) []Row {
	return unsafe.Slice((*Row)(unsafe.Pointer(unsafe.SliceData(rows))), len(rows))
}

// pairsOf views pairs of another package as ours. Their types have the same fields.
func pairsOf[P ~struct{ Packets, Bytes uint64 }](pairs []P) []Pair {
	return unsafe.Slice((*Pair)(unsafe.Pointer(unsafe.SliceData(pairs))), len(pairs))
}
