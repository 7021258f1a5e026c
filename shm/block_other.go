//go:build race || !amd64

package shm

// publishSame would publish a block in one pass; here nothing is faster than
// the way that suits every block.
func publishSame(_, _ *uint64, _ *copyMem, _ *Block, _, _ uint64) (done bool) { return false }

// streamCopies would copy past the caches; here it copies as ever.
func streamCopies(dst, src []copyMem, heads []copyHead, _ *[segmentBlocks]lineMem) {
	copyCopies(dst, src, heads)
}
