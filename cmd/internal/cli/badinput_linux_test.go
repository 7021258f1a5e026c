package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/internal/lab/need"
)

// run runs a command line in this process.
func run(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, talk bytes.Buffer
	code = Main(t.Context(), strings.NewReader(""), &out, &talk, args)
	return code, out.String(), talk.String()
}

// This is a mirror owned neither by root nor by the reader. check reads it all the same.
func TestMirrorOfAnotherUserIsReadOnlyIfItsOwnerIsNamed(t *testing.T) {
	need.Root(t)
	path, w := webMirror(t)
	if err := w.w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(path, 12345, 12345); err != nil {
		t.Fatal(err)
	}
	for _, command := range []string{"get", "top", "watch"} {
		code, out, talk := run(t, command, "--mirror", path)
		if code != exitFailed || out != "" || !strings.Contains(talk, path) ||
			!strings.Contains(talk, "belongs to user 12345") || !strings.Contains(talk, " --owner UID # trusts the files of the user") {
			t.Errorf("%s: code %d, output %q, error %q", command, code, out, talk)
		}
	}
	if code, out, talk := run(t, "get", "--mirror", path, "--owner", "12345"); code != exitOK || !strings.Contains(out, "web") {
		t.Errorf("with its owner named: code %d, output %q, error %q", code, out, talk)
	}
	if code, out, talk := run(t, "check", "--mirror", path); code != exitOK || !strings.Contains(out, ": ok") {
		t.Errorf("check: code %d, output %q, error %q", code, out, talk)
	}
}

// nobody is a user with no privilege.
const nobody = 65534

// ownBinary puts this test's binary into dir under those names. TestMain makes it the program of that name.
func ownBinary(t *testing.T, dir string, names ...string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	binary, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if err := os.WriteFile(filepath.Join(dir, name), binary, 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

// runAsNobody runs flowtally as that user in dir, and gives dir to the user.
func runAsNobody(t *testing.T, dir string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	ownBinary(t, dir, "flowtally")
	if err := os.Chown(dir, nobody, nobody); err != nil {
		t.Fatal(err)
	}
	var out, talk bytes.Buffer
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(dir, "flowtally"), args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &out, &talk
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), talk.String()
}

// publicDir returns a directory that every user can enter.
func publicDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "flowtally-cli-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// Commands without a need for privileges still work.
func TestCommandsNameTheMissingPrivilegeAndTheRemedy(t *testing.T) {
	need.Root(t)
	dir, rootOwned := publicDir(t), publicDir(t)
	for _, tt := range []struct {
		name string
		args []string
		want []string
	}{
		{"default socket", []string{"run", "--embedded", "--interface", "lo", "--flow", "a=any"}, []string{"/run/flowtally-control"}},
		{"mirror of root", []string{"run", "--embedded", "--backend", "sim", "--flow", "a=any", "--socket", dir + "/run/s.sock", "--mirror", rootOwned + "/x.mirror"}, []string{rootOwned}},
		{"xdp", []string{"run", "--embedded", "--interface", "lo", "--flow", "a=any", "--socket", dir + "/run/s.sock", "--mirror", dir + "/m/x.mirror"}, []string{"starting instance default"}},
	} {
		code, out, talk := runAsNobody(t, dir, tt.args...)
		if code != exitFailed || out != "" || !strings.Contains(talk, "\n  try: ") || strings.Contains(talk, "panic") {
			t.Errorf("%s: code %d, output %q, error %q", tt.name, code, out, talk)
		}
		for _, want := range tt.want {
			if !strings.Contains(talk, want) {
				t.Errorf("%s: error %q does not name %q", tt.name, talk, want)
			}
		}
		t.Logf("%s: %s", tt.name, talk)
	}
	code, out, talk := runAsNobody(t, dir, "doctor")
	if code != exitOK || !strings.Contains(out, "CAP_NET_ADMIN") || strings.Count(out, "✗ no") < 4 {
		t.Errorf("doctor: code %d, output %q, error %q", code, out, talk)
	}
}

func TestRunOnAMissingInterfaceNamesItAndLeavesNothing(t *testing.T) {
	need.BPF(t)
	bpffs := need.BPFFS(t)
	name := lab.Unique("cli-")
	code, out, talk := run(t, "run", "--embedded", "--instance", name, "--interface", "nosuch0", "--flow", "a=any",
		"--socket", "-", "--mirror", filepath.Join(t.TempDir(), "m", "x.mirror"))
	if code != exitUsage || out != "" || !strings.Contains(talk, "nosuch0") || !strings.Contains(talk, "; there are: lo") || !strings.Contains(talk, "\n  try: ") {
		t.Errorf("code %d, output %q, error %q", code, out, talk)
	}
	if _, says, _ := strings.Cut(talk, "\nflowtally: "); strings.Contains(strings.ToLower(says), "rdma") {
		t.Errorf("it says of RDMA: %q", says)
	}
	t.Log(talk)
	if pins := filepath.Join(bpffs, "flowtally", name); exists(pins) {
		t.Errorf("pins are left in %s", pins)
	}
}

// A failed start removes the directories, files and pins that it made. A mirror from before the start stays readable.
func TestFailedStartLeavesNothing(t *testing.T) {
	need.BPF(t)
	bpffs := need.BPFFS(t)
	bin := publicDir(t)
	ownBinary(t, bin, "flowtally-plugin")
	for _, embedded := range []bool{true, false} {
		t.Run(fmt.Sprintf("embedded %t", embedded), func(t *testing.T) {
			dir := t.TempDir()
			t.Setenv("TMPDIR", dir) // of go-plugin's socket
			start := func(mirror string) {
				t.Helper()
				args := []string{"run", "--instance", lab.Unique("cli-"), "--interface", "nosuch0", "--flow", "a=any",
					"--socket", filepath.Join(dir, "run", "x.sock"), "--mirror", mirror, "--plugin", filepath.Join(bin, "flowtally-plugin")}
				if embedded {
					args = append(args, "--embedded")
				}
				if code, _, talk := run(t, args...); code != exitUsage || !strings.Contains(talk, "nosuch0") {
					t.Errorf("code %d, error %q", code, talk)
				}
				// The directory itself stays: the unit's write paths name it.
				if left, err := os.ReadDir(filepath.Join(bpffs, "flowtally")); len(left) > 0 || err != nil && !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("below the pins' directory is left %v, %v", left, err)
				}
			}
			start(filepath.Join(dir, "m", "x.mirror"))
			for _, made := range []string{"m", "run", "plugin-dir*"} {
				if left, err := filepath.Glob(filepath.Join(dir, made)); err != nil || len(left) > 0 {
					t.Errorf("%v is left, %v", left, err)
				}
			}
			path, w := webMirror(t)
			if err := w.w.Close(); err != nil {
				t.Fatal(err)
			}
			start(path)
			if code, out, _ := run(t, "get", "--mirror", path); code != exitOK || !strings.Contains(out, "web") {
				t.Errorf("the totals of before: code %d, output %q", code, out)
			}
		})
	}
}

// The suggested command must work, and mount a bpffs that only root can write to. The error must not mention RDMA.
// This applies to the plugin and to an embedded engine.
func TestRunWithoutBPFFSSaysHowToMountOne(t *testing.T) {
	need.BPF(t)
	need.BPFFS(t)
	need.Netns(t)
	need.Tool(t, "unshare", "umount", "mount", "mountpoint")
	dir := publicDir(t)
	ownBinary(t, dir, "flowtally", "flowtally-plugin")
	run := func(before string, embedded string) string {
		// Another bpffs may be mounted below the first.
		script := "while mountpoint -q /sys/fs/bpf; do umount /sys/fs/bpf || exit 99; done; " + before + dir + "/flowtally run " + embedded + " --instance " + lab.Unique("cli-") +
			" --interface nosuch0 --flow a=any --socket - --mirror " + filepath.Join(t.TempDir(), "m", "x.mirror")
		want := exitFailed
		if before != "" {
			want = exitUsage // the interface alone is missing
		}
		out, err := exec.Command("unshare", "-m", "sh", "-c", script).CombinedOutput()
		if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || exit.ExitCode() != want {
			t.Errorf("%v\n%s", err, out)
		}
		return string(out)
	}
	const mount = "mount -t bpf -o mode=0700 bpf /sys/fs/bpf"
	for _, embedded := range []string{"", "--embedded"} {
		_, says, _ := strings.Cut(run("", embedded), "\nflowtally: ")
		if !strings.Contains(says, "bpffs on /sys/fs/bpf: not supported: not mounted") || !strings.Contains(says, "\n  try: "+mount+"\n") || strings.Contains(says, "rdma") {
			t.Errorf("run %s says\n%s", embedded, says)
		}
		if says := run(mount+" && ", embedded); !strings.Contains(says, "nosuch0") || strings.Contains(says, mount) {
			t.Errorf("run %s, with the bpffs that it asks for, says\n%s", embedded, says)
		}
	}
}

func TestRootStartsNoPluginThatOthersCanWrite(t *testing.T) {
	need.Root(t)
	dir := publicDir(t)
	path := filepath.Join(dir, "flowtally-plugin")
	if err := errors.Join(os.WriteFile(path, []byte("#!/bin/sh\n"), 0o755), os.Chmod(path, 0o757)); err != nil {
		t.Fatal(err)
	}
	code, out, talk := run(t, "run", "--plugin", path, "--backend", "sim", "--flow", "a=any", "--socket", "-", "--mirror", filepath.Join(dir, "m", "x.mirror"))
	if code != exitFailed || out != "" || !strings.Contains(talk, path) || !strings.Contains(talk, "0757") || !strings.Contains(talk, "\n  try: ") {
		t.Errorf("code %d, output %q, error %q", code, out, talk)
	}
	if code, out, _ := run(t, "doctor", "--plugin", path); code != exitOK || !strings.Contains(out, "0757") {
		t.Errorf("doctor: code %d, output %q", code, out)
	}
}

// The error says how much space is missing, and no file is left behind.
func TestMirrorThatDoesNotFitIsRefusedWhole(t *testing.T) {
	need.Cap(t, "sys_admin")
	dir := publicDir(t)
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64k,mode=0755"); err != nil {
		need.Missing(t, "mount", err.Error())
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	path := filepath.Join(dir, "x.mirror")
	code, out, talk := run(t, "run", "--embedded", "--backend", "sim", "--flow", "a=any", "--socket", "-", "--mirror", path)
	if code != exitFailed || out != "" || !strings.Contains(talk, path) || !strings.Contains(talk, "full") || !strings.Contains(talk, "\n  try: ") {
		t.Errorf("code %d, output %q, error %q", code, out, talk)
	}
	t.Log(talk)
	if left, _ := filepath.Glob(filepath.Join(dir, "*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	if code, out, _ := run(t, "doctor", "--mirror", path); code != exitOK || !strings.Contains(out, "free, a mirror needs") {
		t.Errorf("doctor: code %d, output %q", code, out)
	}
}

func TestCommandsThatRunUntilASignalEndWithSuccess(t *testing.T) {
	path, _ := webMirror(t)
	for _, command := range []string{"top", "watch"} {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		var out, talk bytes.Buffer
		start := time.Now()
		if code := Main(ctx, nil, &out, &talk, []string{command, "--mirror", path}); code != exitOK {
			t.Errorf("%s: code %d, %s", command, code, talk.String())
		}
		if d := time.Since(start); d > 20*time.Second {
			t.Errorf("%s took %s to end", command, d)
		}
		cancel()
	}
}

// Reading a truncated mapping raises SIGBUS, which must not kill the reader.
func TestReaderOfATruncatedMirrorEndsWithAnError(t *testing.T) {
	path, w := webMirror(t)
	if err := w.w.Close(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	out, talk := &lockedBuffer{}, &lockedBuffer{}
	ended := make(chan int, 1)
	go func() { ended <- Main(ctx, nil, out, talk, []string{"top", "--mirror", path, "--interval", "20ms"}) }()
	for out.String() == "" && ctx.Err() == nil {
		time.Sleep(time.Millisecond)
	}
	if err := os.Truncate(path, 4096); err != nil {
		t.Fatal(err)
	}
	code := <-ended
	if code != exitFailed || !strings.Contains(talk.String(), "truncated") || !strings.Contains(talk.String(), "\n  try: ") {
		t.Errorf("code %d, %s", code, talk)
	}
}
