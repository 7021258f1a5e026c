//go:build (amd64 || arm64) && !race

package shm

// The memory operations of the protocol, in a few instructions of assembly. sync/atomic would cost more: on amd64 its store is
// an XCHG, which takes about 10 ns. And it has no fence, so every word of a copy would have to be an atomic operation.

// publish64 stores v to *p with release: a thread that loads v with acquire sees every store before it. Stores after
// publish64 may become visible before v on arm64, so the next publish begins with announce64 or storeFence.
//
//go:noescape
func publish64(p *uint64, v uint64)

// announce64 stores v to *p, then fences: *p and every store before it become visible before any store after it.
//
//go:noescape
func announce64(p *uint64, v uint64)

// copyWords copies src to dst, which have one length. A reader's copy may mix words of two publishes. The reader finds that by
// comparing the sequence word afterwards, and must not use the copy before.
func copyWords(dst, src []uint64) { copy(dst, src) }

func copyBlock(dst, src *Block) { copyWords(wordsAt(dst), wordsAt(src)) }

func storeValue(dst *Value, v Value) { *dst = v }

// The stores below are plain. Only the writer stores these words, an aligned store of up to 8 bytes is never torn, and the
// publish64 that follows makes them visible to readers.

func store64(p *uint64, v uint64) { *p = v }

func storeTime(p *int64, v int64) { *p = v }

func store32(p *uint32, v uint32) { *p = v }

func clearRows(rows []Value) { clear(rows) }
