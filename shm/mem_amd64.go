//go:build amd64 && !race

package shm

// amd64 keeps loads in order with loads, and stores in order with stores. The compiler moves neither across a sync/atomic
// operation or a call, and every use of a fence stands between two of these. So a fence is no instruction here.

func storeFence() {}

func loadFence() {}

// loadValue reads the three words before any load that follows it.
func loadValue(p *Value) Value { return *p }
