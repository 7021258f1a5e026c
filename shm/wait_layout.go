package shm

// The layout of the page of waiters, version 1. docs/waiting.md is the specification;
// TestPageLayout compares it with these constants.
const (
	pageMagic   = "FLOWWAIT" // its first 8 bytes
	pageVersion = 1
	pageSize    = 4096 // of the file, whatever a page of the machine is

	wpMagic      = 0
	wpVersion    = 8  // u32
	wpByteOrder  = 12 // u32
	wpGeneration = 16 // of the writer that wakes; 0: none does yet
	wpWord       = 64 // u32, the futex: another value before each wake
	wpTurn       = 68 // u32, raised before each pass over the sleepers
)

// A sleeper's bits, as FUTEX_WAIT_BITSET takes them. The lower half holds one bit, of
// the turn that the sleeper saw: a pass of the writer wakes the sleepers of other turns,
// so that it wakes none twice. The upper half is the sleeper's to choose: the Go reader
// takes one of 16 bits, so that a context that ends wakes one sleeper of 16.
const (
	turns    = 16
	turnBits = 1<<turns - 1
	anyBits  = 1<<32 - 1
)
