//go:build !linux

package words

import (
	"errors"
	"fmt"
	"os"
)

// File is a words file, open for its writer.
type File struct{}

// NewFile returns errors.ErrUnsupported on this platform.
func NewFile() (*File, error) {
	return nil, fmt.Errorf("making a words file: %w", errors.ErrUnsupported)
}

// Number returns 0.
func (*File) Number() uint64 { return 0 }

// Words returns nil.
func (*File) Words() *[2]uint64 { return nil }

// Descriptor returns nil.
func (*File) Descriptor(bool) *os.File { return nil }

// Close does nothing.
func (*File) Close() {}

type connection struct{}

// Ask returns errors.ErrUnsupported on this platform.
func Ask(path string, _ uint64, _ func(uid uint32) error) (*Mapping, error) {
	return nil, fmt.Errorf("%s: asking for a words file: %w", path, errors.ErrUnsupported)
}

// Options are the options of Take.
type Options struct {
	Limit  uint64
	Owners []uint32
}

// Take returns errors.ErrUnsupported on this platform.
func Take(path, name string, _ Options) (*Words, error) {
	return nil, fmt.Errorf("%s: taking words %q: %w", Path(path), name, errors.ErrUnsupported)
}

// Served returns false.
func (*Words) Served() bool { return false }

// Close does nothing.
func (*Words) Close() error { return nil }
