package include

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/flowtally/flowtally/internal/lab/need"
)

// TestInstallOnAFullFileSystemInstallsNothing: make install on a file system without room for the files names the room that is missing, and
// installs nothing.
func TestInstallOnAFullFileSystemInstallsNothing(t *testing.T) {
	need.Root(t)
	need.Cap(t, "sys_admin")
	_, args := installTree(t)
	full := t.TempDir()
	if err := unix.Mount("tmpfs", full, "tmpfs", 0, "size=4m,mode=0755"); err != nil {
		need.Missing(t, "mount", err.Error())
	}
	t.Cleanup(func() {
		if err := unix.Unmount(full, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	args = append([]string{"-C", "../..", "--no-print-directory", "PREFIX=" + prefix}, args...)
	out, err := exec.CommandContext(t.Context(), "make", append(args, "DESTDIR="+full, "install")...).CombinedOutput()
	if err == nil || !strings.Contains(string(out), full+" has 4096 KiB of free space") || !strings.Contains(string(out), "make room") {
		t.Errorf("%v\n%s", err, out)
	}
	if left, err := os.ReadDir(full); err != nil || len(left) > 0 {
		t.Errorf("installed: %v, %v", left, err)
	}
}
