package plugin_test

import (
	"encoding/binary"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/flowtally/flowtally/internal/lab/need"
)

// A program that runs as the user or the group of its file does not put its socket where its caller says, and does not
// look for one there. A program with file capabilities does: it runs as its caller.
func TestControlPathIgnoresTheCallersDirectoryOnlyUnderSetID(t *testing.T) {
	need.Root(t)
	need.Cap(t, "sys_admin")
	base, err := os.MkdirTemp("", "flowtally-place-") // t.TempDir cannot be entered by others
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(base) })
	if err := unix.Mount("tmpfs", base, "tmpfs", 0, "mode=0755"); err != nil { // without nosuid
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Unmount(base, unix.MNT_DETACH) })
	const user, other = 1234, 4321
	runtime, program := filepath.Join(base, "runtime"), filepath.Join(base, "program")
	self, err := os.ReadFile("/proc/self/exe")
	inRuntime := filepath.Join(runtime, "flowtally-control/lb.sock")
	if err := errors.Join(err, os.MkdirAll(filepath.Dir(inRuntime), 0o755), os.Chown(runtime, user, user), os.WriteFile(inRuntime, nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	// CAP_CHOWN, permitted and effective
	capabilities := binary.LittleEndian.AppendUint32(nil, 0x02000001)
	capabilities = append(binary.LittleEndian.AppendUint32(capabilities, 1<<unix.CAP_CHOWN), make([]byte, 12)...)
	const inRun = "/run/flowtally-control/lb.sock"
	for _, tt := range []struct {
		name         string
		caller       uint32
		uid, gid     int // of the program
		mode         fs.FileMode
		capabilities []byte
		want         string
	}{
		{"none", user, 0, 0, 0o755, nil, inRuntime + " " + inRuntime + " false"},
		{"another group", user, 0, other, 0o755 | fs.ModeSetgid, nil, inRun + " " + inRun + " true"},
		{"another user", other, user, 0, 0o755 | fs.ModeSetuid, nil, inRun + " " + inRun + " true"},
		{"capabilities", user, 0, 0, 0o755, capabilities, inRuntime + " " + inRuntime + " true"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := errors.Join(os.WriteFile(program, self, 0o755), os.Chown(program, tt.uid, tt.gid), os.Chmod(program, tt.mode))
			if tt.capabilities != nil {
				err = errors.Join(err, unix.Setxattr(program, "security.capability", tt.capabilities, 0))
			}
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.CommandContext(t.Context(), program)
			cmd.Dir = "/"
			cmd.Env = append(os.Environ(), roleEnv+"=place", "XDG_RUNTIME_DIR="+runtime)
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: tt.caller, Gid: tt.caller}}
			out, err := cmd.CombinedOutput()
			if got := strings.TrimSpace(string(out)); err != nil || got != tt.want {
				t.Errorf("%q, %v, want %q", got, err, tt.want)
			}
		})
	}
}
