//go:build unix

package trust

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/flowtally/flowtally/internal/lab/need"
)

func mine(uid uint32) bool { return uid == 0 || uid == 777 }

// why returns the reason that Open gives for path.
func why(t *testing.T, path string) string {
	t.Helper()
	f, why, err := Open(path, mine)
	if err != nil {
		t.Error(err)
	}
	if (f == nil) == (why == "") {
		t.Errorf("%s: descriptor %v and reason %q", path, f, why)
	}
	f.Close()
	return why
}

// Open refuses a file if the file, its directory or any directory above it is not trusted.
func TestOpenFailsIfAnythingOnThePathIsUntrusted(t *testing.T) {
	need.Root(t) // to give files away
	const sticky = os.ModeSticky
	for _, test := range []struct {
		name             string
		above, dir, file os.FileMode
		uids             [3]int // of these
		says             string // "": trusted
	}{
		{"root's", 0o755, 0o755, 0o755, [3]int{}, ""},
		{"of somebody else who is trusted", 0o755, 0o755, 0o755, [3]int{777, 777, 777}, ""},
		{"directory of a group", 0o755, 0o775, 0o755, [3]int{}, ""},
		{"in /tmp", 0o755, 0o777 | sticky, 0o755, [3]int{}, ""},
		{"in a directory in /tmp", 0o777 | sticky, 0o755, 0o755, [3]int{}, ""},
		{"another's", 0o755, 0o755, 0o755, [3]int{0, 0, 1234}, "file belongs to user 1234, which root does not trust: chown root"},
		{"another's in /tmp", 0o755, 0o777 | sticky, 0o755, [3]int{0, 0, 1234}, "file belongs to user 1234"},
		{"directory of another", 0o755, 0o755, 0o755, [3]int{0, 1234, 0}, "dir belongs to user 1234"},
		{"directory of another in /tmp", 0o777 | sticky, 0o755, 0o755, [3]int{0, 1234, 0}, "dir belongs to user 1234"},
		{"/tmp of another", 0o755, 0o777 | sticky, 0o755, [3]int{0, 1234, 0}, "dir belongs to user 1234"},
		{"directory above of another", 0o755, 0o755, 0o755, [3]int{1234, 0, 0}, "above belongs to user 1234"},
		{"group-writable", 0o755, 0o755, 0o775, [3]int{}, "file (mode 0775) can be written by others"},
		{"world-writable", 0o755, 0o755, 0o757, [3]int{}, "chmod go-w"},
		{"directory world-writable", 0o755, 0o777, 0o755, [3]int{}, "dir (mode 0777) can be written by others"},
		{"directory above world-writable", 0o777, 0o755, 0o755, [3]int{}, "above (mode 0777) can be written by others"},
	} {
		t.Run(test.name, func(t *testing.T) {
			above := filepath.Join(t.TempDir(), "above")
			dir := filepath.Join(above, "dir")
			file := filepath.Join(dir, "file")
			err := errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(file, nil, 0o700))
			for i, c := range []struct {
				path string
				mode os.FileMode
			}{{above, test.above}, {dir, test.dir}, {file, test.file}} {
				err = errors.Join(err, os.Chown(c.path, test.uids[i], -1), os.Chmod(c.path, c.mode))
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := why(t, file); (got == "") != (test.says == "") || !strings.Contains(got, test.says) {
				t.Errorf("%q, want %q", got, test.says)
			}
		})
	}
}

// A user who can create a link in a path that root resolves chooses the file that root finds, even
// among root's own files.
func TestOpenDistrustsLinksThatAnotherUserCouldMake(t *testing.T) {
	need.Root(t)
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	must := func(errs ...error) {
		t.Helper()
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
	}
	must(os.MkdirAll(at("a/b"), 0o755), os.WriteFile(at("a/b/file"), nil, 0o755), os.Mkdir(at("open"), 0o755), os.Mkdir(at("sticky"), 0o755))
	must(os.Chmod(at("open"), 0o777), os.Chmod(at("sticky"), 0o777|os.ModeSticky))
	for link, target := range map[string]string{
		"absolute": at("a/b/file"), "relative": "a/../a/b/./file", "directory": "a/b", "a/up": "../a/b",
		"open/link": at("a/b/file"), "sticky/link": at("a/b/file"), "sticky/theirs": at("a/b/file"),
		"through": "open/link", "to theirs": "sticky/theirs", "loop": "loop", "dangling": "nowhere",
	} {
		must(os.Symlink(target, at(link)))
	}
	must(os.Lchown(at("sticky/theirs"), 1234, 1234))
	for path, says := range map[string]string{
		"absolute": "", "relative": "", "directory/file": "", "a/up/file": "", "a/up/../up/file": "", "sticky/link": "",
		"open/link":     "open (mode 0777) can be written by others",
		"through":       "open (mode 0777) can be written by others",
		"sticky/theirs": "sticky/theirs belongs to user 1234, which root does not trust: chown -h root",
		"to theirs":     "sticky/theirs belongs to user 1234",
	} {
		if got := why(t, at(path)); (got == "") != (says == "") || !strings.Contains(got, says) {
			t.Errorf("%s: %q, want %q", path, got, says)
		}
	}
	for path, want := range map[string]error{
		"loop": unix.ELOOP, "dangling": fs.ErrNotExist, "absent": fs.ErrNotExist, "a/b/file/x": unix.ENOTDIR,
	} {
		if f, why, err := Open(at(path), mine); !errors.Is(err, want) || why != "" || f != nil {
			t.Errorf("%s: %q, %v, want %v", path, why, err, want)
		}
	}
}

func TestOwnsProgramOnlyIfNobodyElseCouldWriteIt(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	uid := uint32(os.Geteuid()) // of the test's binary
	for _, c := range []struct {
		mode os.FileMode
		uid  uint32
		want bool
	}{
		{0o755, uid, true},
		{0o755, uid + 1, false},
		{0o775, uid, false},
		{0o757, uid, false},
	} {
		if err := os.Chmod(self, c.mode); err != nil {
			t.Fatal(err)
		}
		if got := OwnsProgram(c.uid); got != c.want {
			t.Errorf("user %d owns a program of user %d and mode %04o: %v", c.uid, uid, c.mode, got)
		}
	}
}
