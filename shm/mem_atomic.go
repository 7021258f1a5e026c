//go:build race || (!amd64 && !arm64)

package shm

import "sync/atomic"

// The memory operations of the protocol, with one sync/atomic operation for each word. They are correct on every
// architecture, and the race detector understands them. The detector does not see mapped memory, so the tests for it put the
// mirror on the heap.

func publish64(p *uint64, v uint64) { atomic.StoreUint64(p, v) }

func announce64(p *uint64, v uint64) { atomic.StoreUint64(p, v) }

// Go's atomic operations are sequentially consistent: all threads see them in one order, which is the program order of each
// thread. In this file every access to a shared word is atomic, so there is nothing left for a fence to order.

func storeFence() {}

func loadFence() {}

// copyWords copies word by word. Only one of the two sides is shared, but treating both as shared costs little and saves a
// second function.
func copyWords(dst, src []uint64) {
	for i := range dst {
		atomic.StoreUint64(&dst[i], atomic.LoadUint64(&src[i]))
	}
}

func copyBlock(dst, src *Block) {
	for i := range dst {
		storeValue(&dst[i], src[i])
	}
}

func storeValue(dst *Value, v Value) {
	atomic.StoreUint64(&dst.Packets, v.Packets)
	atomic.StoreUint64(&dst.Bytes, v.Bytes)
	atomic.StoreInt64(&dst.SampledAt, v.SampledAt)
}

func store64(p *uint64, v uint64) { atomic.StoreUint64(p, v) }

func storeTime(p *int64, v int64) { atomic.StoreInt64(p, v) }

func store32(p *uint32, v uint32) { atomic.StoreUint32(p, v) }

func clearRows(rows []Value) {
	for i := range rows {
		storeValue(&rows[i], Value{})
	}
}
