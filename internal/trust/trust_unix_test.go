//go:build unix

package trust

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/flowtally/flowtally/internal/lab/need"
)

func TestDistrust(t *testing.T) {
	need.Root(t) // to give files away
	mine := func(uid uint32) bool { return uid == 0 || uid == 777 }
	for _, test := range []struct {
		name            string
		dir, file       os.FileMode
		dirUID, fileUID int
		says            string // "": trusted
	}{
		{"root's", 0o755, 0o755, 0, 0, ""},
		{"of somebody else who is trusted", 0o755, 0o755, 777, 777, ""},
		{"directory of a group", 0o775, 0o755, 0, 0, ""},
		{"in /tmp", 0o777 | os.ModeSticky, 0o755, 0, 0, ""},
		{"another's", 0o755, 0o755, 0, 1234, "belongs to user 1234"},
		{"directory of another", 0o755, 0o755, 1234, 0, "belongs to user 1234"},
		{"group-writable", 0o755, 0o775, 0, 0, "chmod go-w"},
		{"world-writable", 0o755, 0o757, 0, 0, "chmod go-w"},
		{"directory world-writable", 0o777, 0o755, 0, 0, "chmod go-w"},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "d")
			file := filepath.Join(dir, "plugin")
			err := errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(file, nil, 0o700), os.Chmod(dir, test.dir), os.Chmod(file, test.file),
				os.Chown(dir, test.dirUID, -1), os.Chown(file, test.fileUID, -1))
			if err != nil {
				t.Fatal(err)
			}
			why, err := Distrust(file, mine)
			if err != nil || (why == "") != (test.says == "") || !strings.Contains(why, test.says) {
				t.Errorf("%q, %v, want %q", why, err, test.says)
			}
		})
	}
	if why, err := Distrust(filepath.Join(t.TempDir(), "absent"), mine); !errors.Is(err, fs.ErrNotExist) || why != "" {
		t.Errorf("of a file that is not there: %q, %v", why, err)
	}
}

func TestOwnsProgram(t *testing.T) {
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
