//go:build !linux

package backend

// Netns is the only network namespace of a system without them.
type Netns struct{}

// CurrentNetns returns the namespace.
func CurrentNetns() (*Netns, error) { return &Netns{}, nil }

// Do runs fn.
func (*Netns) Do(fn func() error) error { return fn() }

// Close does nothing.
func (*Netns) Close() error { return nil }
