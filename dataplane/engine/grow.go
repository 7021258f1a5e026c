package engine

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/shm"
)

// mirrorFile is what is known of the mirror's file: which one it is, and why the last counter
// found no room in it. It has a lock of its own, as conditions are looked at beside control calls.
type mirrorFile struct {
	mu   sync.Mutex
	is   os.FileInfo
	full error
}

// note takes note of the file at path.
func (m *mirrorFile) note(path string) error {
	at, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("looking at the mirror: %w", err)
	}
	m.is = at
	return nil
}

// list is shm.Writer.Add, and the plan knows the counter's segment after it. It is called with
// ctl held.
func (e *Engine) list(want shm.Entry) (shm.Handle, error) {
	h, err := e.writer.Add(want)
	e.mirror.mu.Lock()
	defer e.mirror.mu.Unlock()
	switch {
	case err == nil:
		e.mirror.full = nil
		e.plan.room(h, want.Latency)
	case errors.Is(err, shm.ErrFull):
		e.mirror.full = err
	}
	return h, err
}

// conditions lists what is wrong with the mirror's file.
func (m *mirrorFile) conditions(path string, w *shm.Writer) (out []dataplane.Condition) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if at, err := os.Stat(path); err != nil || !os.SameFile(at, m.is) {
		out = append(out, dataplane.Condition{
			Code: "mirror-lost", Severity: dataplane.High, Object: path,
			Text: "the file was removed or replaced: who opens it from now on does not find these values",
			Fix:  "restart the instance, with xdp.keep_pins: it writes a new one, and what the kernel counted goes on",
		})
	}
	if m.full != nil {
		used, latency := w.Used()
		out = append(out, dataplane.Condition{
			Code: "mirror-full", Severity: dataplane.Low, Object: path,
			Text: fmt.Sprintf("%d counters and %d latency counters are in use, and the last that was added found no room: %v", used, latency, m.full),
			Fix:  "make room on its file system, or raise mirror.counters or mirror.latency_counters and restart; the mirror grows with the next flow that needs it",
		})
	}
	return out
}
