package shm

import "time"

// anchor relates Go's monotonic clock to CLOCK_MONOTONIC. On Linux they are one clock with two zeros, but Go does not let a
// program read its own as a number.
var anchor = newAnchor()

// clockAnchor is one instant, read on both clocks.
type clockAnchor struct {
	base time.Time
	mono int64
}

// newAnchor reads one clock between two reads of the other. It does that eight times and keeps the try with the least time
// between the two reads, because an interrupt may come in between.
func newAnchor() clockAnchor {
	best := clockAnchor{}
	narrowest := time.Duration(1<<63 - 1)
	for range 8 {
		before := time.Now()
		mono := monotonic()
		if width := time.Since(before); width < narrowest {
			narrowest = width
			best = clockAnchor{base: before, mono: mono - int64(width/2)}
		}
	}
	return best
}

// Now returns the time on the mirror's clock, CLOCK_MONOTONIC, in nanoseconds. It is exact to some tens of nanoseconds and
// makes no system call.
func Now() int64 { return anchor.mono + int64(time.Since(anchor.base)) }
