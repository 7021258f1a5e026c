package engine

import (
	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/shm"
)

// entryOf returns the entry of a flow in the mirror.
func entryOf(f flow.Flow) shm.Entry {
	return shm.Entry{
		Name: f.Name, Kind: "flow", Unit: "packets", Text: f.Identity(), Labels: f.Labels, Latency: f.Latency,
	}
}

// entries returns the entries of all counters, for a mirror that is made again.
func (e *Engine) entries() []shm.Entry {
	out := append(e.pairs.Entries(), e.Set.Entries()...)
	add := func(c *flowState) {
		entry, lost := entryOf(c.Flow), c.isDown()
		entry.Handle = c.handle
		entry.Continuity = c.past
		entry.Source = c.source.String()
		entry.ByteBasis = c.basis
		entry.Valid = !lost
		entry.Stale = lost
		out = append(out, entry)
	}
	for _, c := range e.flows {
		add(c)
	}
	for _, c := range e.adding {
		if c.published() {
			add(c)
		}
	}
	return out
}

// isDown reports whether all interfaces of a flow are missing.
func (c *flowState) isDown() bool { return c.isDownAt(c.source) }

// isDownAt is isDown of a flow with the given source.
func (c *flowState) isDownAt(source dataplane.Source) bool {
	_, hooks := c.backend.(backend.SoftwareBackend)
	return (hooks || c.offload != nil) && len(source.Devices) == 0
}
