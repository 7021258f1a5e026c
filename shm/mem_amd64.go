//go:build amd64 && !race

package shm

// On amd64 a CPU's stores become visible in program order, and its loads read memory in program order. Only a load may
// overtake an earlier store to another word. The fences below order stores with stores, and loads with loads and stores, so
// the CPU needs no instruction for them. The two places that need a full fence use sync/atomic or system calls: see
// waker.cycle and futex(2).
//
// The compiler must not reorder either. It moves no memory access across a sync/atomic operation or across a call of an
// assembly function, and each use of a fence has one of these both before and after it.

func storeFence() {}

func loadFence() {}

// loadValue reads the three words before any later load. Plain loads do, because the CPU keeps loads in order and the callers
// load a sequence word by sync/atomic next.
func loadValue(p *Value) Value { return *p }
