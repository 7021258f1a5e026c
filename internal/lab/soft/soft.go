// Package soft gives the tests of a package RDMA devices without a card. Kernel is the uverbs kernel in software below the
// libraries that the host has installed. Libraries has the shim in front of these, for what no kernel can cause. Both are
// built once, in the directory FLOWTALLY_SOFT where that is set.
package soft

import (
	"os"
	"sync"
	"testing"

	"github.com/flowtally/flowtally/ibv/ibvtest"
	"github.com/flowtally/flowtally/internal/lab/need"
)

// Libraries are the files of ibv/ibvtest, built by the first test that asks for them, and shared by all.
// The zero value is ready.
type Libraries struct {
	once  sync.Once
	dir   string
	built ibvtest.Libs
	err   error
}

// Get needs gcc and a test that was built with cgo, which is the need "cgo".
func (l *Libraries) Get(t testing.TB) ibvtest.Libs {
	t.Helper()
	if !cgo {
		need.Missing(t, "cgo", "this test was built without it, or not for Linux")
	}
	need.Tool(t, "gcc")
	l.once.Do(func() {
		dir := os.Getenv("FLOWTALLY_SOFT")
		if dir == "" {
			l.dir, l.err = os.MkdirTemp("", "flowtally-soft-")
			dir = l.dir
		}
		if l.err == nil {
			l.built, l.err = ibvtest.Build(dir)
		}
	})
	if l.err != nil {
		t.Fatal(l.err)
	}
	return l.built
}

// Close removes them, at the end of TestMain.
func (l *Libraries) Close() error { return os.RemoveAll(l.dir) } // of "" it removes nothing
