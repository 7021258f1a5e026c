//go:build !linux

package live

import "github.com/flowtally/flowtally/probe"

// Socket is no socket on this platform.
type Socket struct{}

// Listen returns probe.ErrNotSupported on this platform.
func Listen(Options) (*Socket, error) { return nil, probe.ErrNotSupported }

// Keep does nothing.
func (*Socket) Keep() error { return nil }

// Close does nothing.
func (*Socket) Close() error { return nil }

// Unread counts nothing on this platform.
type Unread struct{}

// Close does nothing.
func (*Unread) Close() {}
