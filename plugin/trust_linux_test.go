package plugin

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/flowtally/flowtally/internal/lab/need"
	"github.com/flowtally/flowtally/plugin/internal/child"
)

// The target of a link counts, and the users that could have made the link.
func TestRootTrustsOnlyBinariesThatNoOtherUserCouldWrite(t *testing.T) {
	need.Root(t)
	dir := t.TempDir()
	file, link := filepath.Join(dir, "plugin"), filepath.Join(t.TempDir(), "link")
	if err := errors.Join(os.WriteFile(file, nil, 0o755), os.Symlink(file, link)); err != nil {
		t.Fatal(err)
	}
	check := func(want error, paths ...string) {
		t.Helper()
		for _, path := range paths {
			if _, err := Find(path); !errors.Is(err, want) {
				t.Errorf("%s: %v, want %v", path, err, want)
			}
		}
	}
	check(nil, file, link)
	mode := func(path string, m os.FileMode) {
		t.Helper()
		if err := os.Chmod(path, m); err != nil {
			t.Fatal(err)
		}
	}
	mode(file, 0o757)
	check(ErrUntrusted, file, link)
	mode(file, 0o755)
	mode(filepath.Dir(dir), 0o777) // not the file's directory: the one above
	check(ErrUntrusted, file, link)
	mode(filepath.Dir(dir), 0o755)
	mode(filepath.Dir(link), 0o777)
	check(nil, file)
	check(ErrUntrusted, link)
}

// TestNextStepMakesThePluginUsable: the command in the refusal is enough for root to start the binary.
func TestNextStepMakesThePluginUsable(t *testing.T) {
	need.Root(t)
	for _, c := range []struct {
		name string
		mode os.FileMode
		uid  int
	}{
		{"not executable, and written by others", 0o666, 0},
		{"written by others", 0o777, 0},
		{"of another user", 0o755, 1234},
		{"of another user, and written by others", 0o777, 1234},
	} {
		file := filepath.Join(t.TempDir(), "the user's plugin")
		if err := errors.Join(os.WriteFile(file, nil, 0o755), os.Chown(file, c.uid, -1), os.Chmod(file, c.mode)); err != nil {
			t.Fatal(err)
		}
		_, err := Find(file)
		var step interface{ NextStep() string }
		if !errors.As(err, &step) || !strings.Contains(err.Error(), step.NextStep()) {
			t.Errorf("%s: %v has no next step", c.name, err)
			continue
		}
		if out, err := exec.Command("sh", "-c", step.NextStep()).CombinedOutput(); err != nil {
			t.Errorf("%s: %s: %v: %s", c.name, step.NextStep(), err, out)
		}
		if _, err := Find(file); err != nil {
			t.Errorf("%s: after %s: %v", c.name, step.NextStep(), err)
		}
	}
}

// Another user turns a link in a directory like /tmp to and fro between root's file and one of their own.
func TestLinkThatAnotherUserFlipsNeverRunsTheirBinary(t *testing.T) {
	need.Root(t)
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	const theirs = 1234
	script := "#!/bin/sh\n: >" + at("ran") + "\n"
	err := errors.Join(
		os.Chmod(filepath.Dir(dir), 0o755), os.Chmod(dir, 0o777|os.ModeSticky),
		os.WriteFile(at("root"), []byte("#!/bin/sh\nexit 3\n"), 0o755),
		os.WriteFile(at("theirs"), []byte(script), 0o755), os.Chown(at("theirs"), theirs, theirs),
	)
	if err != nil {
		t.Fatal(err)
	}
	other := exec.Command("/bin/sh", "-c", "while ln -sf root a && mv -f a link && echo . && ln -sf theirs b && mv -f b link; do :; done")
	other.Dir = dir
	other.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: theirs, Gid: theirs}, Setpgid: true}
	turns, err := other.StdoutPipe()
	if err == nil {
		err = other.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	defer func() {
		_ = syscall.Kill(-other.Process.Pid, syscall.SIGKILL)
		<-ended // an ln or mv that outlives its shell would make a link in the directory while it is removed
		_ = other.Wait()
	}()
	_, err = io.ReadFull(turns, make([]byte, 1)) // there is a link
	go func() {
		defer close(ended)
		_, _ = io.Copy(io.Discard, turns) // ends with the last process that holds the pipe
	}()
	if err != nil {
		t.Fatal(err)
	}
	sysctl, err := os.ReadFile("/proc/sys/fs/protected_symlinks")
	if err != nil {
		t.Fatal(err)
	}
	protected := strings.TrimSpace(string(sysctl))
	for range 100 {
		c, err := Launch(t.Context(), Options{Path: at("link")})
		if err == nil {
			c.Close()
		}
		if protected == "1" && errors.Is(err, fs.ErrPermission) {
			continue // the kernel does not follow the link
		}
		if !errors.Is(err, ErrUntrusted) || !strings.Contains(err.Error(), "belongs to user 1234") {
			t.Errorf("launching through another's link: %v", err)
			break
		}
	}
	if _, err := os.Stat(at("ran")); err == nil {
		t.Error("the script of another user ran as root")
	}
}

// The child executes the file that was checked, even if the path names another file by then. The file may be
// a script.
func TestCheckedFileRunsEvenIfItsPathChanges(t *testing.T) {
	need.Root(t)
	path := filepath.Join(t.TempDir(), "plugin")
	write := func(says string) {
		t.Helper()
		draft := path + ".new"
		if err := errors.Join(os.WriteFile(draft, []byte("#!/bin/sh\necho "+says+"\n"), 0o755), os.Rename(draft, path)); err != nil {
			t.Fatal(err)
		}
	}
	write("checked")
	found, file, err := find(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	write("swapped")
	c := child.New(found, file, nil, nil)
	if _, err := c.Prepare(nil, &exec.Cmd{}, ""); err != nil {
		t.Fatal(err)
	}
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	out, err := io.ReadAll(c.Stdout())
	if err != nil || string(out) != "checked\n" {
		t.Errorf("it wrote %q, %v", out, err)
	}
	<-c.Exited
}
