package shm

import (
	"crypto/rand"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/flowtally/flowtally/internal/space"
	"github.com/flowtally/flowtally/shm/words"
)

// draft is a new file of a mirror under a temporary name. It gets its own name when it is complete, so that no process ever
// opens half a file.
type draft struct {
	path string // the name to be
	tmp  string // the temporary name
	f    *os.File

	space space.Reserve // nil: fallocate
}

// newDraft makes a draft of that length, filled with zeros, and reserves its space. A nil reserve means fallocate. newDraft
// calls step as it proceeds.
func newDraft(path string, length uint64, mode fs.FileMode, reserve space.Reserve, step func(string)) (_ *draft, err error) {
	tmp := tempPrefix(path) + strings.ToLower(rand.Text())
	d := &draft{
		path:  path,
		tmp:   filepath.Join(filepath.Dir(path), tmp),
		space: reserve,
	}

	step("create-begin")
	f, err := os.OpenFile(d.tmp, os.O_RDWR|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, mode)
	if err != nil {
		return nil, fmt.Errorf("%s: creating file: %w", path, err)
	}
	d.f = f
	defer func() {
		if err != nil {
			d.drop()
		}
	}()
	step("create-opened")

	if err := d.store().reserve(0, length); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if err := f.Chmod(mode); err != nil { // the umask may have taken bits from OpenFile's mode
		return nil, fmt.Errorf("%s: setting mode: %w", path, err)
	}
	step("create-allocated")
	return d, nil
}

// store returns the draft as the store of a mirror.
func (d *draft) store() fileStore { return fileStore{d.f, true, d.space} }

// name gives the draft its name. It replaces a file of that name.
func (d *draft) name() error {
	if err := os.Rename(d.tmp, d.path); err != nil {
		return fmt.Errorf("%s: naming file: %w", d.path, err)
	}
	return nil
}

// drop removes a draft that has no name yet.
func (d *draft) drop() {
	_ = d.f.Close()
	_ = os.Remove(d.tmp)
}

func tempPrefix(path string) string { return "." + filepath.Base(path) + ".tmp-" }

// sweep removes the drafts of killed writers. The caller must hold the lock: nobody else is making a draft then.
func sweep(path string, log *slog.Logger) {
	dir := filepath.Dir(path)
	list, err := os.ReadDir(dir)
	if err != nil {
		return
	}

	files := []string{path, devicePath(path), waitPath(path), LivePath(path), words.Path(path)}
	for _, d := range list {
		isDraft := slices.ContainsFunc(files, func(file string) bool {
			return strings.HasPrefix(d.Name(), tempPrefix(file))
		})
		if !isDraft {
			continue
		}
		left := filepath.Join(dir, d.Name())
		if err := os.Remove(left); err == nil {
			log.Info("removed a half-made file of a mirror", "path", left)
		}
	}
}
