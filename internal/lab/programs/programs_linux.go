// Package programs gives tests the project's programs as root runs them: in a directory that no other user can write.
package programs

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/flowtally/flowtally/internal/lab/need"
)

// Set is the programs of one test binary. The zero value is ready to use. Close it in TestMain.
type Set struct {
	// Names are the programs that are copied from $FLOWTALLY_BIN. Without names the whole directory is.
	Names []string

	once sync.Once
	dir  string
	err  error
}

// Path returns the path of a program. The first call puts the programs into the directory: copies of those in
// $FLOWTALLY_BIN, which may be another user's, and otherwise new ones.
func (s *Set) Path(t *testing.T, name string) string {
	t.Helper()
	if os.Getenv("FLOWTALLY_BIN") == "" {
		need.Tool(t, "go", "make")
	}
	s.once.Do(func() { s.err = s.make() })
	if s.err != nil {
		t.Fatal(s.err)
	}
	return filepath.Join(s.dir, name)
}

// make runs in the directory of a package of internal/lab.
func (s *Set) make() (err error) {
	if s.dir, err = os.MkdirTemp("", "flowtally-programs-"); err != nil {
		return err
	}
	if err := os.Chmod(s.dir, 0o755); err != nil { // for tests without privileges
		return err
	}

	syscall.Umask(0o022) // root runs no plugin that another user can write
	cmd := exec.Command("make", "-C", "../../..", "--no-print-directory", "build", "BIN="+s.dir)
	if bin := os.Getenv("FLOWTALLY_BIN"); bin != "" {
		cmd = exec.Command("cp", append(s.copied(bin), s.dir)...)
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%v: %w\n%s", cmd.Args, err, out)
	}
	return nil
}

// copied returns the arguments of cp that name what is copied from bin.
func (s *Set) copied(bin string) []string {
	if len(s.Names) == 0 {
		return []string{"-r", bin + "/."}
	}
	var paths []string
	for _, name := range s.Names {
		paths = append(paths, filepath.Join(bin, name))
	}
	return paths
}

// Close removes the directory.
func (s *Set) Close() {
	os.RemoveAll(s.dir) // "" is nothing
}
