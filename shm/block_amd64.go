//go:build amd64 && !race

package shm

import "golang.org/x/sys/cpu"

//go:noescape
func publishSameAVX2(seq, intent *uint64, to *copyMem, src *Block, next, cycle uint64) (done bool)

var haveAVX2 = cpu.X86.HasAVX2

// publishSame publishes a block whose rows are all live and were all sampled at one time. It takes one pass, and fills to,
// the copy that next makes current. It returns false, and has published nothing, if the times differ or this machine has
// no AVX2.
func publishSame(seq, intent *uint64, to *copyMem, src *Block, next, cycle uint64) (done bool) {
	return haveAVX2 && publishSameAVX2(seq, intent, to, src, next, cycle)
}

//go:noescape
func streamAVX2(dst, src *copyMem, heads *copyHead, n int, next *lineMem) (done bool)

// streamCopies copies src and its heads past the caches, if this machine has AVX2, and fetches the sequence words next, which
// the snapshot looks at afterwards.
func streamCopies(dst, src []copyMem, heads []copyHead, next *[segmentBlocks]lineMem) {
	if !haveAVX2 || len(src) == 0 || !streamAVX2(&dst[0], &src[0], &heads[0], len(src), &next[0]) {
		copyCopies(dst, src, heads)
	}
}
