package shm

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// Somebody who clears up takes the lock's name away, or puts another file there, between a
// writer's opening it and locking it: what that writer then holds must lock the next one out.
func TestLockThatLostItsName(t *testing.T) {
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

// A new file that cannot be named in the place of one that is no mirror leaves that one
// as it was.
func TestReplaceFails(t *testing.T) {
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
