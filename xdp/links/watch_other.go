//go:build !linux

package links

import (
	"context"
	"errors"
)

// Watch is not supported here.
func Watch(context.Context) (<-chan Event, error) { return nil, errors.ErrUnsupported }

// List is not supported here.
func List() (map[int]Link, error) { return nil, errors.ErrUnsupported }
