package cli

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/flowtally/flowtally/internal/lab/need"
)

// Before the first start another user, or a mistake, has put something at the place of the directory for mirrors or
// for control sockets. The error must name the path and a next step, and nothing there may change.
func TestRootRefusesDirectoriesThatAnotherUserPrepared(t *testing.T) {
	need.Root(t)
	const stranger = 12345
	for _, place := range []string{"mirror", "socket"} {
		for name, tt := range map[string]struct {
			make func(path, other string) error
			want string
		}{
			"a symlink to a directory of another user": {func(path, other string) error { return os.Symlink(other, path) }, ""},
			"a symlink that another user owns": {func(path, other string) error {
				return errors.Join(os.Symlink(other, path), os.Lchown(path, stranger, stranger))
			}, ""},
			"a symlink to nothing": {func(path, _ string) error { return os.Symlink("/nonexistent/x", path) }, ""},
			"a directory of another user": {func(path, _ string) error {
				return errors.Join(os.Mkdir(path, 0o755), os.Chown(path, stranger, stranger))
			}, "12345"},
			"a directory that others may write": {func(path, _ string) error { return errors.Join(os.Mkdir(path, 0o755), os.Chmod(path, 0o777)) }, ""},
			"a file":                            {func(path, _ string) error { return os.WriteFile(path, []byte("x"), 0o644) }, "not a directory"},
		} {
			t.Run(place+"/"+name, func(t *testing.T) {
				base := publicDir(t)
				other := filepath.Join(base, "other")
				if err := errors.Join(os.Mkdir(other, 0o755), os.Chown(other, stranger, stranger)); err != nil {
					t.Fatal(err)
				}
				at := map[string]string{"mirror": filepath.Join(base, "flowtally"), "socket": filepath.Join(base, "control")}
				if err := tt.make(at[place], other); err != nil {
					t.Fatal(err)
				}
				before, err := os.Lstat(at[place])
				if err != nil {
					t.Fatal(err)
				}
				code, out, talk := run(t, "run", "--embedded", "--backend", "sim", "--flow", "a=any",
					"--socket", at["socket"]+"/s.sock", "--mirror", at["mirror"]+"/x.mirror")
				t.Log(talk)
				if code == exitOK || out != "" || !strings.Contains(talk, at[place]) || !strings.Contains(talk, tt.want) || !strings.Contains(talk, "\n  try: ") {
					t.Errorf("code %d, output %q, error %q; want %q", code, out, talk, tt.want)
				}
				if after, err := os.Lstat(at[place]); err != nil || after.Mode() != before.Mode() || !os.SameFile(before, after) {
					t.Errorf("it has changed: %v, %v", after, err)
				}
				if left, err := os.ReadDir(other); err != nil || len(left) > 0 {
					t.Errorf("in the other user's directory: %v, %v", left, err)
				}
			})
		}
	}
}
