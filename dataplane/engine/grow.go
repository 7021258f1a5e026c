package engine

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/shm"
)

// mirrorFile is what is known of the mirror's file: which one it is, and why there can be no
// larger one. It has a lock of its own, as conditions are looked at beside control calls.
type mirrorFile struct {
	mu   sync.Mutex
	is   os.FileInfo
	full error
}

// note takes note of the file at path, and of the outcome of an attempt to make it larger.
func (m *mirrorFile) note(path string, full error) error {
	m.full = full
	at, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("looking at the mirror: %w", err)
	}
	m.is = at
	return nil
}

// list is shm.Writer.Add into a mirror that grows when it is full. It is called with ctl held.
func (e *Engine) list(want shm.Entry) (shm.Handle, error) {
	h, err := e.writer.Add(want)
	if !errors.Is(err, shm.ErrFull) {
		return h, err
	}
	if why := e.grow(want.Latency); why != nil {
		return h, fmt.Errorf("%w; it cannot grow: %w", err, why)
	}
	return e.writer.Add(want)
}

// grow doubles the room for counters of one class. Latency counters have other indices then:
// whoever holds a handle of one is told. It is called with ctl held.
func (e *Engine) grow(latency bool) error {
	counters, records := e.writer.Capacity()
	if latency {
		records = max(2*records, blockSize)
	} else {
		counters = max(2*counters, blockSize)
	}
	e.mirror.mu.Lock() // nobody misses the file while the larger one takes its name
	defer e.mirror.mu.Unlock()
	var moved shm.Growth
	err := e.plan.grow(func() (shm.Growth, int, int, error) {
		var err error
		moved, err = e.writer.Grow(counters, records)
		counters, records = e.writer.Capacity()
		return moved, counters, records, err
	})
	if err := errors.Join(err, e.mirror.note(e.cfg.Mirror.Path, err)); err != nil {
		return err
	}
	for _, old := range e.inherited {
		old.Handle = moved.Handle(old.Handle)
	}
	for _, c := range e.flows {
		c.handle = moved.Handle(c.handle)
	}
	for _, c := range e.adding {
		c.handle = moved.Handle(c.handle)
	}
	return nil
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
	size, _ := w.Capacity()
	if used, _ := w.Used(); m.full != nil && used*10 >= size*9 {
		out = append(out, dataplane.Condition{
			Code: "mirror-full", Severity: dataplane.Low, Object: path,
			Text: fmt.Sprintf("%d of %d counters are in use, and it cannot grow: %v", used, size, m.full),
			Fix:  "make room on its file system; the mirror grows with the next flow that needs it",
		})
	}
	return out
}
