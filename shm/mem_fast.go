//go:build (amd64 || arm64) && !race

package shm

// The memory operations of the protocol, where a few instructions of assembly do them. sync/atomic would do as well, but
// its store is an XCHG on amd64, which takes about 10 ns, and it has no fences.

// publish64 stores v to *p with release: a thread that loads v with acquire sees every store before it.
//
//go:noescape
func publish64(p *uint64, v uint64)

// announce64 stores v to *p, then fences: *p and every store before it become visible before any store after it.
//
//go:noescape
func announce64(p *uint64, v uint64)

// copyWords copies src to dst, which are of one length. The caller discards the copy if another process wrote meanwhile,
// which the sequence word tells.
func copyWords(dst, src []uint64) { copy(dst, src) }

func copyBlock(dst, src *Block) { copyWords(wordsAt(dst), wordsAt(src)) }

func storeValue(dst *Value, v Value) { *dst = v }

// Only the writer stores these words, and an aligned store is one store.

func store64(p *uint64, v uint64) { *p = v }

func storeTime(p *int64, v int64) { *p = v }

func store32(p *uint32, v uint32) { *p = v }

func clearRows(rows []Value) { clear(rows) }
