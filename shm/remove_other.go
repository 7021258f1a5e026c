//go:build !linux

package shm

import "fmt"

// Remove returns ErrNotSupported: no mirror is written here.
func Remove(path string) error { return fmt.Errorf("%s: removing mirror: %w", path, ErrNotSupported) }
