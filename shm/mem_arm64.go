//go:build arm64 && !race

package shm

// On arm64 a CPU may reorder any two accesses to different words, so each order that the protocol relies on needs an
// instruction:
//   - a store-release (STLR: publish64 and the stores of sync/atomic) waits for all accesses before it, but later stores may
//     overtake it;
//   - a load-acquire (LDAR: the loads of sync/atomic) precedes all accesses after it, but may overtake earlier loads;
//   - a fence orders both sides.
//
// So where stores must follow another store, or a second look at a sequence word must follow plain loads, release and acquire
// are not enough, and the code has one of these fences.

// storeFence makes every store before it visible before any store after it (DMB ISHST).
func storeFence()

// loadFence completes every load before it before any load or store after it (DMB ISHLD).
func loadFence()
