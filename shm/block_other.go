//go:build race || !amd64

package shm

// publishSame would publish a block in one pass; here nothing is faster than
// the way that suits every block.
func publishSame(*blockMem, *Block, uint64, uint64) (done bool) { return false }
