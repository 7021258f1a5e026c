//go:build amd64 && !race

package shm

import "golang.org/x/sys/cpu"

//go:noescape
func publishSameAVX2(seq, intent *uint64, to *copyMem, src *Block, next, cycle uint64) (done bool)

var haveAVX2 = cpu.X86.HasAVX2

// publishSame publishes a block in one pass, if all rows are live and have one sample time. to must be the copy that next
// makes current. publishSame returns false, and publishes nothing, if the times differ or this CPU has no AVX2.
func publishSame(seq, intent *uint64, to *copyMem, src *Block, next, cycle uint64) (done bool) {
	return haveAVX2 && publishSameAVX2(seq, intent, to, src, next, cycle)
}

//go:noescape
func streamAVX2(dst, src *copyMem, heads *copyHead, n int, next *lineMem) (done bool)

// streamCopies copies src and its heads with stores that bypass the caches, and prefetches the sequence words next, which the
// snapshot loads afterwards. Without AVX2 it copies as copyCopies does.
func streamCopies(dst, src []copyMem, heads []copyHead, next *[segmentBlocks]lineMem) {
	if !haveAVX2 || len(src) == 0 || !streamAVX2(&dst[0], &src[0], &heads[0], len(src), &next[0]) {
		copyCopies(dst, src, heads)
	}
}
