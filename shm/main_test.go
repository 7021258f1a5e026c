package shm

import (
	"os"
	"testing"
)

// children are what this binary does when a test runs it as another process.
var children = map[string]func(){}

func TestMain(m *testing.M) {
	if child := children[os.Getenv("FLOWTALLY_SHM_CHILD")]; child != nil {
		child()
		os.Exit(0)
	}
	os.Exit(m.Run())
}
