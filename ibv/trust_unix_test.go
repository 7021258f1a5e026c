//go:build unix

package ibv

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/flowtally/flowtally/internal/lab/need"
)

// A program with file capabilities has them for its owner's code, not for files of the user who
// starts it.
func TestFilesOfTheCallerAreNotTrustedInSecureExecution(t *testing.T) {
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

// Whoever can replace a directory on the path can replace the file. Plugins are checked in the same
// way.
func TestEveryDirectoryToALibraryMustBeTrusted(t *testing.T) {
	need.Root(t)
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	err := errors.Join(os.MkdirAll(at("lib/rdma"), 0o755), os.WriteFile(at("lib/rdma/x.so"), nil, 0o644), os.Mkdir(at("open"), 0o755),
		os.Chmod(at("open"), 0o777), os.Symlink(at("lib/rdma/x.so"), at("open/x.so")), os.Symlink(at("lib/rdma/x.so"), at("x.so")))
	if err != nil {
		t.Fatal(err)
	}
	check := func(path string, want error) {
		t.Helper()
		if err := checkTrust(at(path)); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", path, err, want)
		}
	}
	check("lib/rdma/x.so", nil)
	check("x.so", nil)
	check("open/x.so", ErrUntrusted)
	if err := os.Chmod(at("lib"), 0o777); err != nil {
		t.Fatal(err)
	}
	check("lib/rdma/x.so", ErrUntrusted)
	check("x.so", ErrUntrusted)
}
