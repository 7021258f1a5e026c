//go:build amd64 && !race

package shm

import "golang.org/x/sys/cpu"

// copyBlockAVX2 is copyBlockSame in one pass.
//
//go:noescape
func copyBlockAVX2(dst, src *Block) (same bool)

var haveAVX2 = cpu.X86.HasAVX2

// copyBlockSame copies a block. That same is true says that all rows were
// sampled at one time; that it is false says nothing.
func copyBlockSame(dst, src *Block) (same bool) {
	if haveAVX2 {
		return copyBlockAVX2(dst, src)
	}
	copyBlock(dst, src)
	return false
}
