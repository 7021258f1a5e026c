package shm

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/flowtally/flowtally/internal/space"
	"github.com/flowtally/flowtally/shm/words"
)

// draft is a file of a mirror that is made whole under another name before it
// gets its own.
type draft struct {
	path, tmp string
	f         *os.File
	space     space.Reserve // nil: fallocate
}

// newDraft makes a file of length zero bytes, whose space is reserved, to be
// named path. step is told how far it came. reserve may be nil, for fallocate.
func newDraft(path string, length uint64, mode fs.FileMode, reserve space.Reserve, step func(string)) (_ *draft, err error) {
	d := &draft{
		path:  path,
		tmp:   filepath.Join(filepath.Dir(path), tempPrefix(path)+strings.ToLower(rand.Text())),
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
	if err := f.Chmod(mode); err != nil { // newDraft's caller chooses the mode, not the umask
		return nil, fmt.Errorf("%s: setting mode: %w", path, err)
	}
	step("create-allocated")
	return d, nil
}

// store is the draft as the store of a mirror.
func (d *draft) store() fileStore { return fileStore{d.f, true, d.space} }

// reserve makes the file end at off + n.
func (s fileStore) reserve(off, n uint64) error {
	st, err := s.Stat()
	if err != nil {
		return err
	}
	switch size := uint64(st.Size()); {
	case size < off: // fallocate would hide it
		return fmt.Errorf("%d of %d bytes are there: %w", size, off, ErrTruncated)
	case size > off: // a segment that was reserved and not declared, or bytes that another process appended
		if err := s.Truncate(int64(off)); err != nil {
			return fmt.Errorf("setting length: %w", err)
		}
	}
	allocate := s.space
	if allocate == nil {
		allocate = fallocate
	}
	err = allocate(s.File, int64(off), int64(n))
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) || errors.Is(err, unix.EFBIG) {
		at := mountPoint(filepath.Dir(s.Name()))
		return fmt.Errorf("reserving %d bytes: %w: free space on %s, enlarge it (mount -o remount,size=… %s), or ask for less history: %w",
			n, err, at, at, ErrFull)
	}
	if err != nil {
		return fmt.Errorf("reserving %d bytes: %w", n, err)
	}
	return nil
}

func fallocate(f *os.File, off, n int64) error { return unix.Fallocate(int(f.Fd()), 0, off, n) }

func (s fileStore) nextWritten(off uint64) uint64 {
	at, err := unix.Seek(int(s.Fd()), int64(off), unix.SEEK_DATA)
	switch {
	case errors.Is(err, unix.ENXIO): // nothing is written behind off
		return math.MaxUint64
	case err != nil:
		return off
	}
	return uint64(at)
}

// populate maps the pages of n bytes of m at offset off, so that no store of a cycle has to: from Linux 5.14. An
// older one maps them as they are written to.
func populate(m *mapping, off, n uint64) {
	if n == 0 {
		return
	}
	first := off &^ uint64(os.Getpagesize()-1)
	_ = unix.Madvise(m.b[first:off+n], unix.MADV_POPULATE_WRITE)
}

// name gives the draft its name, in the place of the file that has it.
func (d *draft) name() error {
	if err := os.Rename(d.tmp, d.path); err != nil {
		return fmt.Errorf("%s: naming file: %w", d.path, err)
	}
	return nil
}

// drop removes a draft that was not named.
func (d *draft) drop() {
	_ = d.f.Close()
	_ = os.Remove(d.tmp)
}

func tempPrefix(path string) string { return "." + filepath.Base(path) + ".tmp-" }

// sweep removes the drafts that killed writers left. The lock is held: no other writer
// is making one.
func sweep(path string, log *slog.Logger) {
	dir := filepath.Dir(path)
	list, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, d := range list {
		if !slices.ContainsFunc([]string{path, devicePath(path), waitPath(path), LivePath(path), words.Path(path)}, func(path string) bool {
			return strings.HasPrefix(d.Name(), tempPrefix(path))
		}) {
			continue
		}
		if err := os.Remove(filepath.Join(dir, d.Name())); err == nil {
			log.Info("removed a half-made file of a mirror", "path", filepath.Join(dir, d.Name()))
		}
	}
}
