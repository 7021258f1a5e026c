//go:build !linux

package soft

// Kernel is there on Linux alone. Elsewhere a TestMain for all systems calls it to no effect.
type Kernel struct{}

// Preload returns at once.
func (*Kernel) Preload() {}

// Close has nothing to remove.
func (*Kernel) Close() error { return nil }
