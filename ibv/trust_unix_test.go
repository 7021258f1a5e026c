//go:build unix

package ibv

import (
	"os"
	"runtime"
	"testing"
)

// A program with file capabilities has them for what its owner wrote, not for what
// whoever starts it did.
func TestWhoseFilesAreTrusted(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(self, 0o755); err != nil {
		t.Fatal(err)
	}
	owner := uint32(os.Geteuid()) // of the test's binary
	caller, other := owner+1, owner+2
	for _, c := range []struct {
		name   string
		uid    uint32
		secure bool
		want   bool
	}{
		{"root", 0, false, true},
		{"root, in secure execution", 0, true, true},
		{"the program's owner", owner, false, true},
		{"the program's owner, in secure execution", owner, true, true},
		{"the caller", caller, false, true},
		{"the caller, in secure execution", caller, true, false},
		{"somebody else", other, false, false},
		{"somebody else, in secure execution", other, true, false},
	} {
		if got := trusts(c.uid, caller, c.secure); got != c.want {
			t.Errorf("%s: trusted %v, want %v", c.name, got, c.want)
		}
	}
	if runtime.GOOS == "linux" && secureExecution() {
		t.Error("a test has no more than its caller")
	}
}
