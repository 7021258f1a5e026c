//go:build !linux

package shm

import "fmt"

// Create answers ErrNotSupported on this platform.
func Create(o Options) (*Writer, error) {
	return nil, fmt.Errorf("%s: creating mirror: %w", o.withDefaults().Path, ErrNotSupported)
}

// onTmpfs returns false: no mirror is made here.
func onTmpfs(string) bool { return false }

func populate(*mapping) {}
