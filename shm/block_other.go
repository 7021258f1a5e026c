//go:build race || !amd64

package shm

// publishSame returns false: nothing is faster here than the way that suits every block.
func publishSame(_, _ *uint64, _ *copyMem, _ *Block, _, _ uint64) (done bool) { return false }

// streamCopies copies through the caches here.
func streamCopies(dst, src []copyMem, heads []copyHead, _ *[segmentBlocks]lineMem) {
	copyCopies(dst, src, heads)
}
