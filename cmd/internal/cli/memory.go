package cli

import (
	"os"
	"runtime"
	"runtime/debug"
)

// collectLess makes the garbage collector run half as often until restore is called. Reading a file of 100,000 flows
// grows the heap to 200 MB, and hardly any of it is garbage until the file is read. An explicit GOGC wins.
func collectLess() (restore func()) {
	if os.Getenv("GOGC") != "" {
		return func() {}
	}

	before := debug.SetGCPercent(200)
	return func() { debug.SetGCPercent(before) }
}

// freeMemory returns the memory of a large start to the kernel. A sync.Pool keeps its memory through one collection, so
// there are two: this one, and the one inside FreeOSMemory.
func freeMemory() {
	runtime.GC()
	debug.FreeOSMemory()
}
