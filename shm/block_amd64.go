//go:build amd64 && !race

package shm

import "golang.org/x/sys/cpu"

//go:noescape
func publishSameAVX2(b *blockMem, src *Block, next, cycle uint64) (done bool)

var haveAVX2 = cpu.X86.HasAVX2

// publishSame publishes a block all of whose rows are live and were sampled at
// one time, in one pass. It answers false when they were not, or when this
// machine cannot, and has published nothing then.
func publishSame(b *blockMem, src *Block, next, cycle uint64) (done bool) {
	return haveAVX2 && publishSameAVX2(b, src, next, cycle)
}
