//go:build !linux

package xdp

import "context"

// Watch is not supported here.
func Watch(context.Context) (<-chan LinkEvent, error) { return nil, supported() }
