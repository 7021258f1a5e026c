package xdp

import "unsafe"

// words views a key as the words that the classifier works on. A Key begins with an array of no uint64, so it is aligned for them. It
// is made of bytes and integers alone, so every pattern of bits is valid.
func (k *Key) words() *words { return (*words)(unsafe.Pointer(k)) }

// wordsOf views mapped memory as words. mmap returns whole pages, so the first byte is aligned. The caller keeps the mapping as long
// as the words are used.
func wordsOf(b []byte) []uint64 {
	if len(b) < 8 {
		return nil
	}
	return unsafe.Slice((*uint64)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/8)
}

// marksOf views words as marks, two in each word.
func marksOf(w []uint64) []uint32 {
	return unsafe.Slice((*uint32)(unsafe.Pointer(unsafe.SliceData(w))), len(w)*2)
}

// bytesOf views words as bytes.
func bytesOf(w []uint64) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(w))), len(w)*8)
}

// rowsOf views rows of another package as ours: they have the same fields.
func rowsOf[R ~struct {
	Packets, Bytes uint64
	SampledAt      int64
}](rows []R) []Row {
	return unsafe.Slice((*Row)(unsafe.Pointer(unsafe.SliceData(rows))), len(rows))
}

// pairsOf views pairs of another package as ours: they have the same fields.
func pairsOf[P ~struct{ Packets, Bytes uint64 }](pairs []P) []Pair {
	return unsafe.Slice((*Pair)(unsafe.Pointer(unsafe.SliceData(pairs))), len(pairs))
}
