//go:build amd64 && !race

package shm

// amd64 keeps loads in order with loads and stores in order with stores, and
// the compiler moves neither across a sync/atomic operation or a call, between
// which every use stands: fences cost nothing.

func storeFence() {}

func loadFence() {}

// loadValue reads the three words before any load that follows it.
func loadValue(p *Value) Value { return *p }
