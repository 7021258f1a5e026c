//go:build !linux

package lab

import "errors"

// Isolate needs Linux.
func Isolate(string) error { return errors.ErrUnsupported }
