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

// mirrorFile holds what conditions say of the mirror's file: why the last counter found no room in
// it, and what became of it. It has a lock of its own, as conditions are looked at beside control calls.
type mirrorFile struct {
	mu       sync.Mutex
	full     error
	lost     error // it is not there, or not as it was, and could not be made anew
	remade   error // what had become of it when it was made anew last
	remadeAt time.Time
}

// keepMirror makes the mirror anew when its file was removed, replaced, cut short or
// overwritten. It is called with ctl held, about once a second and before flows are changed.
func (e *Engine) keepMirror() {
	what, err := e.writer.Intact(), error(nil)
	if errors.Is(what, shm.ErrClosed) {
		return
	}
	if what != nil {
		err = e.writer.Remake(e.entries())
		e.pairs.WriteAgain()
	}
	e.mirror.mu.Lock()
	defer e.mirror.mu.Unlock()
	if what == nil {
		e.mirror.lost = nil
		return
	}
	if err != nil {
		e.mirror.lost = fmt.Errorf("%w; %w", what, err)
		return
	}
	e.log.Warn("the mirror was made anew", "path", e.cfg.Mirror.Path, "reason", what)
	e.mirror.lost, e.mirror.remade, e.mirror.remadeAt = nil, what, time.Now()
}

// entries returns the entries of all counters as shm.Writer.Remake needs them. It is called with ctl held.
func (e *Engine) entries() []shm.Entry {
	out := e.pairs.Entries()
	flows := slices.Collect(maps.Values(e.flows))
	for _, c := range e.adding {
		if c.published() {
			flows = append(flows, c)
		}
	}
	for _, c := range flows {
		entry, lost := entryOf(c.Flow), c.lost()
		entry.Handle, entry.Continuity = c.handle, c.past
		entry.Source, entry.ByteBasis, entry.Valid, entry.Stale = c.source.String(), c.basis, !lost, lost
		out = append(out, entry)
	}
	return out
}

// spared is the error of a change to the mirror, or nil where the mirror is damaged: what was changed
// stands in memory too, and from there in the mirror that is made anew within a second. It is called
// with ctl held.
func (e *Engine) spared(err error) error {
	if !errors.Is(err, shm.ErrTruncated) && !errors.Is(err, shm.ErrGone) {
		return err
	}
	if what := e.writer.Intact(); what == nil || errors.Is(what, shm.ErrClosed) {
		return err
	}
	return nil
}

// list is shm.Writer.Add, which is tried again where the mirror was damaged meanwhile, and the plan knows the counter's segment after it. It is called with
// ctl held.
func (e *Engine) list(want shm.Entry) (shm.Handle, error) {
	h, err := e.writer.Add(want)
	// A start that finds the mirror damaged fails: what it inherits stands there alone.
	for try := 0; errors.Is(err, shm.ErrTruncated) && e.inherited == nil && try < addTries; try++ {
		e.keepMirror()
		h, err = e.writer.Add(want)
	}
	e.mirror.mu.Lock()
	defer e.mirror.mu.Unlock()
	switch {
	case err == nil:
		e.mirror.full = nil
		e.plan.AddSegment(h, want.Latency)
	case errors.Is(err, shm.ErrFull):
		e.mirror.full = err
	}
	return h, err
}

// conditions lists the faults of the mirror's file.
func (m *mirrorFile) conditions(path string, w *shm.Writer) (out []dataplane.Condition) {
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
			Fix:  "find out who changes files in " + filepath.Dir(path),
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
