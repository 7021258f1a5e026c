package rdma

import (
	"sync/atomic"

	"github.com/flowtally/flowtally/dataplane/engine/backend"
)

// slotSample is the last sample of a slot, and the number of its resets.
type slotSample struct {
	backend.LastSample
	resets atomic.Uint64 // how often the device has reset the slot, or packets were missed
}

// slotCount turns the values of a hardware counter into the count of a flow. A counter of a bulk still has the counts of earlier
// flows. We do not reset it, because a reset takes a command and loses the packets since the last read. Instead the first value
// is the baseline of the flow.
type slotCount struct {
	base, last backend.Pair // values of the hardware counter
	before     backend.Pair // counted before the last reset
}

// start makes raw the baseline of the flow.
func (c *slotCount) start(raw backend.Pair) { *c = slotCount{base: raw, last: raw} }

// total returns the flow's count for the next value of the counter. If the value is lower than the last one, the device has reset
// the counter: the count goes on from there, and reset is true.
func (c *slotCount) total(raw backend.Pair) (p backend.Pair, reset bool) {
	if raw.Packets < c.last.Packets || raw.Bytes < c.last.Bytes {
		c.before = backend.Add(c.before, backend.Sub(c.last, c.base))
		c.base, reset = backend.Pair{}, true
	}
	c.last = raw
	return backend.Add(c.before, backend.Sub(raw, c.base)), reset
}
