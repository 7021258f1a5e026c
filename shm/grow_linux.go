package shm

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// Grow makes room for that many counters of each class, and more only where
// there is more already: a larger file with the contents of this one takes its
// name, and the writer goes on in it. Readers of the old file keep its last
// values and are told (Superseded); device segments stay where they are. An error
// leaves everything as it was; ErrFull: no space is left for the file.
//
// It is a control method, and the cycles wait only while the contents are
// copied. Who publishes by index must not do so between Grow and its own
// change of the indices of latency counters (Growth.Handle).
func (w *Writer) Grow(counters, latency int) (Growth, error) {
	w.growing.Lock()
	defer w.growing.Unlock()
	have, want, err := w.larger(counters, latency)
	if err != nil {
		return Growth{}, err
	}
	if want == have {
		return Growth{from: have.counters, to: have.counters}, nil
	}
	generation, err := newGeneration()
	if err != nil {
		return Growth{}, err
	}
	_, length := want.sections()
	d, err := newDraft(w.path, length, w.mode, w.step)
	if err != nil {
		return Growth{}, fmt.Errorf("%s: growing mirror: %w", w.path, err)
	}
	g, err := w.growInto(d, want, generation)
	if err != nil {
		d.drop()
		return Growth{}, fmt.Errorf("%s: growing mirror: %w", w.path, err)
	}
	w.log.Info("mirror has grown", "path", w.path, "counters", want.counters, "latency", want.records)
	return g, nil
}

func (w *Writer) growInto(d *draft, want geometry, generation uint64) (Growth, error) {
	v, err := format(d.m.b, want, time.Now().UnixNano())
	if err != nil {
		return Growth{}, err
	}
	w.step("create-formatted")
	// So that the cycles do not wait for page faults; from Linux 5.14.
	_ = unix.Madvise(d.m.b, unix.MADV_POPULATE_WRITE)
	w.step("create-populated")
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return Growth{}, ErrClosed
	}
	return w.moveTo(d.m, v, generation, d.name)
}
