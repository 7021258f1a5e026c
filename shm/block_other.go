//go:build race || !amd64

package shm

// copyBlockSame copies a block. That same is true says that all rows were
// sampled at one time; that it is false says nothing.
func copyBlockSame(dst, src *Block) (same bool) {
	copyBlock(dst, src)
	return false
}
