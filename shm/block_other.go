//go:build race || !amd64

package shm

// publishSame would publish a block in one pass; here nothing is faster than
// the way that suits every block.
func publishSame(_, _ *uint64, _ *copyMem, _ *Block, _, _ uint64) (done bool) { return false }
