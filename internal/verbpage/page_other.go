//go:build !linux

package verbpage

import (
	"errors"
	"os"
	"sync/atomic"
)

func word([]byte, int) *atomic.Uint64 { return new(atomic.Uint64) }

// New returns errors.ErrUnsupported.
func New() (*Page, *os.File, error) { return nil, nil, errors.ErrUnsupported }

// Open returns errors.ErrUnsupported.
func Open(*os.File) (*Page, error) { return nil, errors.ErrUnsupported }

// Close does nothing.
func (p *Page) Close() error { return nil }
