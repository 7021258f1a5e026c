package engine

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/shm"
)

// remadeFor is how long the condition mirror-remade lasts.
const remadeFor = 10 * time.Minute

// addTries is how often a counter is added to a mirror that is damaged again and again.
const addTries = 8

// mirrorFaults holds the faults of the mirror's file. It has a lock of its own, because conditions are read during control
// calls.
type mirrorFaults struct {
	mu       sync.Mutex
	full     error // why the last counter found no room
	lost     error // the file is missing or damaged, and could not be made again
	remade   error // the damage after which it was made again
	remadeAt time.Time
}

// repair makes the mirror again when its file was removed, replaced, cut short or overwritten. It is called about once a
// second and before flows are changed.
func (m *catalogue) repair() {
	damage, err := m.writer.Intact(), error(nil)
	if errors.Is(damage, shm.ErrClosed) {
		return
	}
	if damage != nil {
		err = m.writer.Remake(m.entries())
		m.pairs.WriteAgain()
	}
	m.faults.mu.Lock()
	defer m.faults.mu.Unlock()
	if damage == nil {
		m.faults.lost = nil
		return
	}
	if err != nil {
		m.faults.lost = fmt.Errorf("%w; %w", damage, err)
		return
	}
	m.log.Warn("the mirror was made anew", "path", m.path, "reason", damage)
	m.faults.lost, m.faults.remade, m.faults.remadeAt = nil, damage, time.Now()
}

// entries returns the entries of all counters, as shm.Writer.Remake needs them.
func (m *catalogue) entries() []shm.Entry {
	out := m.pairs.Entries()
	flows := slices.Collect(maps.Values(m.flows))
	for _, c := range m.adding {
		if c.published() {
			flows = append(flows, c)
		}
	}
	for _, c := range flows {
		entry, lost := entryOf(c.Flow), c.isDown()
		entry.Handle, entry.Continuity = c.handle, c.past
		entry.Source, entry.ByteBasis, entry.Valid, entry.Stale = c.source.String(), c.basis, !lost, lost
		out = append(out, entry)
	}
	return out
}

// unlessDamaged returns the error of a change to the mirror, or nil where the mirror is damaged: the change is in
// memory too, and the mirror that repair makes within a second holds it.
func (m *catalogue) unlessDamaged(err error) error {
	if !errors.Is(err, shm.ErrTruncated) && !errors.Is(err, shm.ErrGone) {
		return err
	}
	if damage := m.writer.Intact(); damage == nil || errors.Is(damage, shm.ErrClosed) {
		return err
	}
	return nil
}

// addEntry is shm.Writer.Add. It repeats that where the mirror was damaged meanwhile, and adds the counter's segment to
// the plan.
func (m *catalogue) addEntry(want shm.Entry) (shm.Handle, error) {
	h, err := m.writer.Add(want)
	// A start that finds the mirror damaged fails: only the mirror has the totals of the earlier process.
	for try := 0; errors.Is(err, shm.ErrTruncated) && m.inherited == nil && try < addTries; try++ {
		m.repair()
		h, err = m.writer.Add(want)
	}
	m.faults.mu.Lock()
	defer m.faults.mu.Unlock()
	switch {
	case err == nil:
		m.faults.full = nil
		m.plan.AddSegment(h, want.Latency)
	case errors.Is(err, shm.ErrFull):
		m.faults.full = err
	}
	return h, err
}

// exchangeEntries is shm.Writer.Exchange, which is tried again where the mirror was damaged meanwhile.
func (m *catalogue) exchangeEntries(old []shm.Handle, entries []shm.Entry) ([]shm.Handle, error) {
	handles, err := m.writer.Exchange(old, entries)
	for try := 0; errors.Is(err, shm.ErrTruncated) && try < addTries; try++ {
		m.repair()
		handles, err = m.writer.Exchange(old, entries)
	}
	switch {
	case errors.Is(err, shm.ErrFull):
		m.faults.mu.Lock()
		m.faults.full = err
		m.faults.mu.Unlock()
		err = fmt.Errorf("%w: %w", dataplane.ErrFull, err)
	case errors.Is(err, shm.ErrInvalid):
		err = fmt.Errorf("%w: %w", dataplane.ErrInvalid, err)
	}
	return handles, err
}

// conditions lists the faults of the mirror's file.
func (m *mirrorFaults) conditions(path string, w *shm.Writer) (out []dataplane.Condition) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.lost != nil {
		out = append(out, dataplane.Condition{
			Code: dataplane.CodeMirrorLost, Severity: dataplane.High, Object: path,
			Text: fmt.Sprintf("the file cannot be made anew: a reader that opens the mirror now does not find these values: %v", m.lost),
			Fix:  "remove the cause; the mirror is made anew within a second",
		})
	}
	if m.remade != nil && time.Since(m.remadeAt) < remadeFor {
		out = append(out, dataplane.Condition{
			Code: dataplane.CodeMirrorRemade, Severity: dataplane.Low, Object: path, Since: m.remadeAt,
			Text: fmt.Sprintf("%v; it was made anew, and totals go on: readers by name follow, others open it again", m.remade),
			Fix:  "find the process that changes files in " + filepath.Dir(path),
		})
	}
	if m.full != nil {
		used, latency := w.Used()
		out = append(out, dataplane.Condition{
			Code: dataplane.CodeMirrorFull, Severity: dataplane.Low, Object: path,
			Text: fmt.Sprintf("%d counters and %d latency counters are in use, and the last that was added found no room: %v", used, latency, m.full),
			Fix:  "make room on its file system, or raise mirror.counters or mirror.latency_counters and restart; the mirror grows with the next flow that needs it",
		})
	}
	return out
}
