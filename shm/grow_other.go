//go:build !linux

package shm

import "fmt"

// Grow answers ErrNotSupported on this platform.
func (w *Writer) Grow(counters, latency int) (Growth, error) {
	if _, _, err := w.larger(counters, latency); err != nil {
		return Growth{}, err
	}
	return Growth{}, fmt.Errorf("%s: growing mirror: %w", w.path, ErrNotSupported)
}
