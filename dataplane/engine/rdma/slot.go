package rdma

import (
	"sync/atomic"

	"github.com/flowtally/flowtally/dataplane/engine/backend"
)

// slotSample is what the device's goroutine leaves of one slot for readers.
type slotSample struct {
	backend.LastSample
	resets atomic.Uint64 // how often the device has reset the slot
}

// slotCount turns what a hardware counter shows into what a flow has counted. A counter
// of a bulk shows what its earlier occupants counted too, and is never reset: that
// would be a command, and lose what comes in between. So its first value is a baseline.
type slotCount struct {
	base, last backend.Pair // of the hardware counter
	before     backend.Pair // counted before it began anew
}

// start makes raw the value from which on the flow counts.
func (m *slotCount) start(raw backend.Pair) { *m = slotCount{base: raw, last: raw} }

// total is the flow's count when the counter shows raw. One that shows less than before was
// reset, and what it had shown stays counted; reset says so.
func (m *slotCount) total(raw backend.Pair) (p backend.Pair, reset bool) {
	if raw.Packets < m.last.Packets || raw.Bytes < m.last.Bytes {
		m.before = backend.Add(m.before, backend.Sub(m.last, m.base))
		m.base, reset = backend.Pair{}, true
	}
	m.last = raw
	return backend.Add(m.before, backend.Sub(raw, m.base)), reset
}
