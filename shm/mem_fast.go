//go:build (amd64 || arm64) && !race

package shm

// The memory operations of the protocol where a few instructions of assembly
// do them. sync/atomic would do, but its store is an XCHG on amd64, about 10 ns
// each, and it has no fences.

// publish64 stores v to *p; every store before it is visible to a thread that loads
// it with acquire.
//
//go:noescape
func publish64(p *uint64, v uint64)

// announce64 stores v to *p; *p and every store before it are visible before
// any store after it.
//
//go:noescape
func announce64(p *uint64, v uint64)

// copyWords copies src to dst, which are of one length. The caller discards words that another process
// wrote meanwhile: the sequence word tells.
func copyWords(dst, src []uint64) { copy(dst, src) }

func copyBlock(dst, src *Block) { copyWords(wordsAt(dst), wordsAt(src)) }

func storeValue(dst *Value, v Value) { *dst = v }

// Single words that only the writer stores: an aligned store is one store.

func store64(p *uint64, v uint64) { *p = v }

func storeTime(p *int64, v int64) { *p = v }

func store32(p *uint32, v uint32) { *p = v }

func clearRows(rows []Value) { clear(rows) }
