//go:build !linux

package instances

import "errors"

// List needs Linux, like instances.
func List(_, _ []string) ([]Instance, error) { return nil, errors.ErrUnsupported }

// Readers needs Linux, like instances.
func Readers() func(mirror string) bool { return func(string) bool { return false } }
