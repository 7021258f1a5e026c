package instances

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/flowtally/flowtally/shm"
)

// For example, a container sees the mirror at another path than this host.
func TestMirrorIsReadThroughAnotherPath(t *testing.T) {
	dir, err := os.MkdirTemp("/dev/shm", "instances-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	here, there := filepath.Join(dir, "lb.mirror"), filepath.Join(dir, "seen-there")
	w, err := shm.Create(shm.Options{Path: here})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	unread := filepath.Join(dir, "unread.mirror")
	if err := os.WriteFile(unread, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(here, there); err != nil {
		t.Fatal(err)
	}
	r, err := shm.OpenReader(there)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	read := Readers()
	if !read(here) {
		t.Error("a mapped mirror is not read")
	}
	if read(unread) {
		t.Error("a file that nobody maps is read")
	}
}

// A hostile user's directory may be a link to root's, and the name of a file may be a shell command.
func TestMirrorsOfALinkAreNotListed(t *testing.T) {
	dir := t.TempDir()
	target, link := filepath.Join(dir, "root"), filepath.Join(dir, "link")
	if err := os.Mkdir(target, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"lb.mirror", "x; reboot.mirror", "\x1b[2J.mirror", "\nforged.mirror"} {
		if err := os.WriteFile(filepath.Join(target, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(target, link); err != nil {
		t.Fatal(err)
	}
	if found := mirrorsIn(link); len(found) != 0 {
		t.Errorf("behind a link: %q", found)
	}
	if found := mirrorsIn(target); len(found) != 1 || filepath.Base(found[0]) != "lb.mirror" {
		t.Errorf("found %q, want lb.mirror alone", found)
	}
}
