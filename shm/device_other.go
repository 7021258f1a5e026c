//go:build !linux

package shm

import "fmt"

// DeviceSegment returns ErrNotSupported on this platform.
func (w *Writer) DeviceSegment(int) (*DeviceSegment, error) {
	return nil, fmt.Errorf("%s: making a device segment: %w", w.devicePath(), ErrNotSupported)
}
