//go:build !linux

package soft

import (
	"testing"

	"github.com/flowtally/flowtally/internal/lab/need"
)

// Kernel is there on Linux alone. Elsewhere a TestMain for all systems calls it to no effect.
type Kernel struct{}

// Preload returns at once.
func (*Kernel) Preload() {}

// Need ends the test.
func (*Kernel) Need(t testing.TB) {
	t.Helper()
	need.Missing(t, "linux", "the uverbs kernel in software is for Linux")
}

// Close has nothing to remove.
func (*Kernel) Close() error { return nil }
