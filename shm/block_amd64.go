//go:build amd64 && !race

package shm

import "golang.org/x/sys/cpu"

//go:noescape
func publishSameAVX2(seq, intent *uint64, to *copyMem, src *Block, next, cycle uint64) (done bool)

var haveAVX2 = cpu.X86.HasAVX2

// publishSame publishes a block all of whose rows are live and were sampled at
// one time, in one pass, in the copy that next makes current. It returns false when they
// were not, or when this machine cannot, and has published nothing then.
func publishSame(seq, intent *uint64, to *copyMem, src *Block, next, cycle uint64) (done bool) {
	return haveAVX2 && publishSameAVX2(seq, intent, to, src, next, cycle)
}

//go:noescape
func streamAVX2(dst, src *copyMem, heads *copyHead, n int, next *lineMem) (done bool)

// streamCopies copies src to dst past the caches, where this machine can, and fetches the
// sequence words that are looked at next.
func streamCopies(dst, src []copyMem, heads []copyHead, next *[segmentBlocks]lineMem) {
	if !haveAVX2 || len(src) == 0 || !streamAVX2(&dst[0], &src[0], &heads[0], len(src), &next[0]) {
		copyCopies(dst, src, heads)
	}
}
