//go:build arm64 && !race

package shm

// storeFence orders every store before it before every store after it (DMB ISHST).
func storeFence()

// loadFence orders every load before it before every load and store after it (DMB ISHLD).
func loadFence()
