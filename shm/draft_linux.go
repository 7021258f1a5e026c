package shm

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// draft is a file of a mirror that is made whole under another name before it
// gets its own.
type draft struct {
	path, tmp string
	m         *mapping
}

// newDraft makes a file of length zero bytes, whose space is reserved, to be
// named path. step is told how far it came.
func newDraft(path string, length uint64, mode fs.FileMode, step func(string)) (_ *draft, err error) {
	d := &draft{path: path, tmp: filepath.Join(filepath.Dir(path), tempPrefix(path)+strings.ToLower(rand.Text()))}
	step("create-begin")
	f, err := os.OpenFile(d.tmp, os.O_RDWR|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, mode)
	if err != nil {
		return nil, fmt.Errorf("%s: creating file: %w", path, err)
	}
	defer f.Close()
	defer func() {
		if err != nil {
			d.drop()
		}
	}()
	step("create-opened")
	if err := unix.Fallocate(int(f.Fd()), 0, 0, int64(length)); err != nil {
		if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
			at := mountPoint(filepath.Dir(path))
			return nil, fmt.Errorf("%s: reserving %d bytes: %w: free space on %s, enlarge it (mount -o remount,size=… %s), or ask for fewer counters or less history: %w",
				path, length, err, at, at, ErrFull)
		}
		return nil, fmt.Errorf("%s: reserving %d bytes: %w", path, length, err)
	}
	if err := f.Chmod(mode); err != nil { // the umask has had its say
		return nil, fmt.Errorf("%s: setting mode: %w", path, err)
	}
	step("create-allocated")
	if d.m, err = mapFile(f, int64(length), true); err != nil {
		return nil, err
	}
	return d, nil
}

// name gives the draft its name, in the place of what has it.
func (d *draft) name() error {
	if err := os.Rename(d.tmp, d.path); err != nil {
		return fmt.Errorf("%s: naming file: %w", d.path, err)
	}
	return nil
}

// drop removes a draft that was not named.
func (d *draft) drop() { _ = os.Remove(d.tmp) }

func tempPrefix(path string) string { return "." + filepath.Base(path) + ".tmp-" }

// sweep removes the drafts that killed writers left. The lock is held: nobody
// else is making one.
func sweep(path string, log *slog.Logger) {
	dir := filepath.Dir(path)
	list, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, d := range list {
		if !slices.ContainsFunc([]string{path, devicePath(path), waitPath(path)}, func(path string) bool {
			return strings.HasPrefix(d.Name(), tempPrefix(path))
		}) {
			continue
		}
		if err := os.Remove(filepath.Join(dir, d.Name())); err == nil {
			log.Info("removed a half-made file of a mirror", "path", filepath.Join(dir, d.Name()))
		}
	}
}
