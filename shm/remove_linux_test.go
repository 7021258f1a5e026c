package shm

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/flowtally/flowtally/internal/lab/need"
)

// TestRemoveFollowsNoLinkOfAnotherUser: a user replaces the directory in which root has seen a mirror by a link to
// a directory of root's.
func TestRemoveFollowsNoLinkOfAnotherUser(t *testing.T) {
	need.Root(t)
	dir := filepath.Dir(mirrorPath(t))
	user, victim := filepath.Join(dir, "user"), filepath.Join(dir, "victim")
	for _, made := range []string{user, victim} {
		if err := os.Mkdir(made, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(victim, "lb.mirror")
	w, err := Create(Options{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(user, "flowtally")
	if err := os.Symlink(victim, link); err != nil {
		t.Fatal(err)
	}
	for _, given := range []string{user, link} {
		if err := os.Lchown(given, 12345, 12345); err != nil {
			t.Fatal(err)
		}
	}
	if err := Remove(filepath.Join(link, "lb.mirror")); err == nil || strings.Contains(err.Error(), "/proc/self") {
		t.Errorf("removing behind another user's link: %v", err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatal(err)
	}

	// What the user has in a directory of his own is removed.
	if err := os.Lchown(victim, 12345, 12345); err != nil {
		t.Fatal(err)
	}
	if err := Remove(path); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("the mirror is there")
	}
}
