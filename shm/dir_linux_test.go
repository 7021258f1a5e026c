package shm

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/flowtally/flowtally/internal/lab/need"
)

// After a writer opens the lock and before it locks it, another process removes the lock's name or puts
// another file there. The lock that this writer gets in the end must still keep the next writer out.
func TestLockThatLostItsNameIsTakenAgain(t *testing.T) {
	for name, clear := range map[string]func(lock string) error{
		"removed":  os.Remove,
		"replaced": func(lock string) error { return errors.Join(os.Remove(lock), os.WriteFile(lock, nil, 0o600)) },
	} {
		t.Run(name, func(t *testing.T) {
			o := with(small, mirrorPath(t))
			opened := 0
			o.hook = func(step string) {
				if step == "lock-opened" {
					if opened++; opened == 1 {
						if err := clear(lockPath(o.Path)); err != nil {
							t.Error(err)
						}
					}
				}
			}
			mustCreate(t, o)
			if opened != 2 {
				t.Errorf("opened the lock %d times", opened)
			}
			if w, err := Create(with(small, o.Path)); !errors.Is(err, ErrInUse) {
				t.Errorf("two writers: %v, %v", w, err)
			}
		})
	}
}

// If Create with Replace cannot rename the new file, the old file, which is no mirror, stays
// as it was.
func TestFailedReplaceLeavesTheFileAsItWas(t *testing.T) {
	path := mirrorPath(t)
	w, err := Create(with(small, path))
	if err != nil {
		t.Fatal(err)
	}
	h := mustAdd(t, w, Entry{Name: "a"})
	w.v.slot(h.Index).entry().flags = 8 // a broken invariant
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	r := mustOpen(t, path)
	c := mustCounter(t, r, h)
	o := with(small, path)
	o.Replace = true
	o.hook = func(step string) {
		if step != "create-ready" {
			return
		}
		left, _ := filepath.Glob(filepath.Join(filepath.Dir(path), ".*"))
		for _, draft := range left {
			if err := os.Remove(draft); err != nil {
				t.Error(err)
			}
		}
	}
	if _, err := Create(o); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	if s := r.Status(); s.State != Halt || s.Replaced {
		t.Errorf("left as %+v", s)
	}
	o.hook = nil
	next := mustCreate(t, o) // and the lock was given back
	if s := r.Status(); !s.Replaced || r.v.hdr.replaced != next.File() {
		t.Errorf("the file that was replaced: %+v, by %#x, want %#x", s, r.v.hdr.replaced, next.File())
	}
	if _, err := c.Load(); !errors.Is(err, ErrStale) {
		t.Errorf("a counter of it: %v", err)
	}
}

// If another user could replace the mirror's directory, Create makes nothing.
func TestNothingIsMadeBelowUntrustedParents(t *testing.T) {
	need.Root(t)
	base := filepath.Dir(mirrorPath(t))
	for _, tt := range []struct {
		name string
		mode fs.FileMode
		uid  int
		says string // "": it is made
	}{
		{"root's", 0o755, 0, ""},
		{"with the sticky bit", 0o777 | fs.ModeSticky, 0, ""},
		{"another's", 0o755, 12345, "belongs to user 12345"},
		{"open", 0o777, 0, "can be written by others"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			above := filepath.Join(base, tt.name)
			dir := filepath.Join(above, "between", "dir")
			if err := errors.Join(os.MkdirAll(filepath.Dir(dir), 0o755), os.Chown(above, tt.uid, tt.uid), os.Chmod(above, tt.mode)); err != nil {
				t.Fatal(err)
			}
			w, err := Create(with(small, filepath.Join(dir, "m.mirror")))
			if tt.says == "" {
				if err != nil {
					t.Fatal(err)
				}
				if err := w.Close(); err != nil {
					t.Error(err)
				}
				return
			}
			if !errors.Is(err, ErrPermission) || !strings.Contains(err.Error(), above+" ") || !strings.Contains(err.Error(), tt.says) || !strings.Contains(err.Error(), "or name another") {
				t.Error(err)
			}
			if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s is there: %v", dir, err)
			}
		})
	}
}

// After chown to root, a directory still has files of its former owner, who may keep the lock locked for
// ever. The error names that file, and after its removal Create makes the mirror.
func TestLockOfAnotherUserIsNamedInTheError(t *testing.T) {
	need.Root(t)
	o := with(small, mirrorPath(t))
	lock := lockPath(o.Path)
	if err := errors.Join(os.WriteFile(lock, nil, 0o666), os.Chown(lock, 12345, 12345)); err != nil {
		t.Fatal(err)
	}
	if _, err := Create(o); !errors.Is(err, ErrPermission) || !strings.Contains(err.Error(), lock+": taking the writer's lock: belongs to user 12345") || !strings.Contains(err.Error(), "remove it") {
		t.Error(err)
	}
	if err := os.Remove(lock); err != nil {
		t.Fatal(err)
	}
	mustCreate(t, o)
}

// A writer whose start fails removes the directory that it made. Another writer may have checked the
// directory by then, and not have its lock in it yet: it must make the directory again.
func TestLockMakesItsDirectoryAgain(t *testing.T) {
	dir := filepath.Join(filepath.Dir(mirrorPath(t)), "gone")
	lock, err := takeLock(filepath.Join(dir, "m.mirror"), func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("%v, %v", info, err)
	}
	if err := os.Remove(dir); err == nil {
		t.Error("the directory was removed under the lock")
	}
	if _, err := takeLock(filepath.Join(dir, "none", "none", "m.mirror"), func(string) {}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("below a directory that is not there: %v", err)
	}
}
