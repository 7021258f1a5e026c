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
