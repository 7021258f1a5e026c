package catalogue

import (
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/shm"
)

// remadeFor is how long the condition mirror-remade stays.
const remadeFor = 10 * time.Minute

// addTries bounds the tries to add a counter to a mirror that another process damages again and again.
const addTries = 8

// faults records what happened to the mirror's file. It has its own lock, because Conditions runs concurrently with control
// calls.
type faults struct {
	mu       sync.Mutex
	full     error // why there was no room for the last counter
	lost     error // why a missing or damaged file could not be made anew
	remade   error // the damage after which the file was made anew
	remadeAt time.Time
}

// Repair makes the mirror anew if another process has removed, replaced, cut short or overwritten its file. The engine calls it
// about once a second, and before it changes flows.
func (m *Catalogue) Repair() {
	damage, err := m.writer.Intact(), error(nil)
	if errors.Is(damage, shm.ErrClosed) {
		return
	}
	if damage != nil {
		entries := m.current()
		for _, old := range m.inheritedByName {
			entries = append(entries, old.Entry)
		}
		err = m.writer.Remake(entries)
		m.plan.ShowLiveAgain()
		m.remade()
	}

	_ = m.socket.Keep() // it logs its error
	m.keep()

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
	m.faults.lost = nil
	m.faults.remade = damage
	m.faults.remadeAt = time.Now()
}

// SetSource writes the source of a counter. lost says that it has no source and keeps its last value.
func (m *Catalogue) SetSource(h shm.Handle, source, basis string, lost bool) error {
	return m.unlessDamaged(errors.Join(m.writer.SetSource(h, source, basis), m.writer.SetFlags(h, !lost, lost, false)))
}

// SetContinuity writes what the next process needs to continue the total of a counter.
func (m *Catalogue) SetContinuity(h shm.Handle, c shm.Continuity) error {
	return m.unlessDamaged(m.writer.SetContinuity(h, c))
}

// SetLimits changes the limits of the mirror.
func (m *Catalogue) SetLimits(cfg dataplane.MirrorConfig) error {
	m.limits = [2]int{cfg.Counters, cfg.LatencyCounters}
	return m.setLimits()
}

// Remove removes a counter from the plan and the mirror.
func (m *Catalogue) Remove(h shm.Handle) error {
	m.plan.Remove(h.Index)
	return m.unlessDamaged(m.writer.Remove(h))
}

// unlessDamaged returns the error of a change to the mirror, or nil if the mirror is damaged. The caller has the change in memory
// too, so the next Repair, within a second, writes it to a new mirror.
func (m *Catalogue) unlessDamaged(err error) error {
	if !errors.Is(err, shm.ErrTruncated) && !errors.Is(err, shm.ErrGone) {
		return err
	}
	if damage := m.writer.Intact(); damage == nil || errors.Is(damage, shm.ErrClosed) {
		return err
	}
	return nil
}

// add calls shm.Writer.Add, and adds the counter's segment to the plan. If the mirror is damaged, it repairs it and tries again.
func (m *Catalogue) add(want shm.Entry) (shm.Handle, error) {
	h, err := m.writer.Add(want)
	// Do not repair during a start: only the damaged mirror has the totals of the earlier process. The start fails.
	for try := 0; errors.Is(err, shm.ErrTruncated) && !m.starting && try < addTries; try++ {
		m.Repair()
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

// Reserve grows the mirror for an Exchange of those entries. It ignores errors, because Exchange returns the same. The holder of
// the lock of control calls may let readers in meanwhile.
func (m *Catalogue) Reserve(entries []shm.Entry) {
	var of [2]int
	for _, e := range entries {
		of[classOf(e)]++
	}
	for class, n := range of {
		_ = m.writer.Reserve(n, class == 1)
	}
}

// Exchange exchanges counters in the mirror and in the plan: see shm.Writer.Exchange. If the mirror is damaged, it repairs it and
// tries again.
func (m *Catalogue) Exchange(old []shm.Handle, entries []shm.Entry, goesOn []bool) ([]shm.Handle, error) {
	handles, err := m.plan.Exchange(old, entries, goesOn, m.writer.Exchange)
	for try := 0; errors.Is(err, shm.ErrTruncated) && !m.starting && try < addTries; try++ {
		m.Repair()
		handles, err = m.plan.Exchange(old, entries, goesOn, m.writer.Exchange)
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

// Conditions lists the faults of the mirror's file. Any goroutine may call it.
func (m *Catalogue) Conditions() (out []dataplane.Condition) {
	f, path := &m.faults, m.path
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.lost != nil {
		out = append(out, dataplane.Condition{
			Code: dataplane.CodeMirrorLost, Severity: dataplane.High, Object: path,
			Text: fmt.Sprintf("the file cannot be made anew: a reader that opens the mirror now does not find these values: %v", f.lost),
			Fix:  "remove the cause; the mirror is made anew within a second",
		})
	}
	if f.remade != nil && time.Since(f.remadeAt) < remadeFor {
		out = append(out, dataplane.Condition{
			Code: dataplane.CodeMirrorRemade, Severity: dataplane.Low, Object: path, Since: f.remadeAt,
			Text: fmt.Sprintf("%v; it was made anew, and totals go on: readers by name follow, others open it again", f.remade),
			Fix:  "find the process that changes files in " + filepath.Dir(path),
		})
	}
	if f.full != nil {
		used, latency := m.writer.Used()
		out = append(out, dataplane.Condition{
			Code: dataplane.CodeMirrorFull, Severity: dataplane.Low, Object: path,
			Text: fmt.Sprintf("%d counters and %d latency counters are in use, and the last that was added found no room: %v", used, latency, f.full),
			Fix:  "make room on its file system, or raise mirror.counters or mirror.latency_counters, then: flowtally apply; the next flow that finds room ends the condition",
		})
	}
	return out
}
