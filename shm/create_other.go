//go:build !linux

package shm

import "fmt"

// Create returns ErrNotSupported on this platform.
func Create(o Options) (*Writer, error) {
	return nil, fmt.Errorf("%s: creating mirror: %w", o.withDefaults().Path, ErrNotSupported)
}

// onTmpfs returns false: no mirror is made here.
func onTmpfs(string) bool { return false }

func populate(*mapping, uint64, uint64) {}

func (fileStore) reserve(off, n uint64) error { return ErrNotSupported }

func (fileStore) nextWritten(off uint64) uint64 { return off }

// Intact returns ErrNotSupported: no mirror is written here.
func (w *Writer) Intact() error { return ErrNotSupported }

// Remake returns ErrNotSupported: no mirror is written here.
func (w *Writer) Remake([]Entry) error { return ErrNotSupported }
