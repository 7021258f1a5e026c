//go:build !linux

package backend

// Netns stands for the only network namespace of the system.
type Netns struct{}

// CurrentNetns returns the namespace.
func CurrentNetns() (*Netns, error) { return &Netns{}, nil }

// Do runs fn.
func (*Netns) Do(fn func() error) error { return fn() }

// Close does nothing.
func (*Netns) Close() error { return nil }
