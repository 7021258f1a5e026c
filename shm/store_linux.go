package shm

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// reserve makes the file end at off + n, and reserves the space of its last n bytes. Without reserved space, a store to a page
// would fault once the tmpfs is full.
func (s fileStore) reserve(off, n uint64) error {
	st, err := s.Stat()
	if err != nil {
		return err
	}
	switch size := uint64(st.Size()); {
	case size < off: // somebody cut the file short: report it, because fallocate would fill the gap with zeros
		return fmt.Errorf("%d of %d bytes are there: %w", size, off, ErrTruncated)
	case size > off: // an earlier grow reserved a segment and failed, or another process appended bytes
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

// fallocate reserves n bytes at the end of the file, off. After a signal the kernel takes back what one call has reserved,
// and signals that keep coming would let no long call end: so it reserves in pieces, and repeats an interrupted one.
func fallocate(f *os.File, off, n int64) error { return inPieces(f, off, n, unix.Fallocate) }

func inPieces(f *os.File, off, n int64, reserve func(fd int, mode uint32, off, n int64) error) error {
	const piece = 1 << 20
	for at, end := off, off+n; at < end; {
		next := min(at+piece, end)
		switch err := reserve(int(f.Fd()), 0, at, next-at); {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return errors.Join(err, f.Truncate(off))
		default:
			at = next
		}
	}
	return nil
}

func (s fileStore) nextWritten(off uint64) uint64 {
	at, err := unix.Seek(int(s.Fd()), int64(off), unix.SEEK_DATA)
	switch {
	case errors.Is(err, unix.ENXIO): // nothing was written after off
		return math.MaxUint64
	case err != nil:
		return off
	}
	return uint64(at)
}

// populate maps the pages of n bytes of m at offset off, so that no store of a cycle causes a page fault. That needs Linux 5.14;
// an older kernel maps each page at the first store to it.
func populate(m *mapping, off, n uint64) {
	if n == 0 {
		return
	}
	first := off &^ uint64(os.Getpagesize()-1)
	_ = unix.Madvise(m.b[first:off+n], unix.MADV_POPULATE_WRITE)
}

// mountPoint returns the directory at which the file system of dir is mounted, going by device numbers. Use it only in the text
// of an error: bind mounts can mislead it.
func mountPoint(dir string) string {
	var here, above unix.Stat_t
	for up := filepath.Dir(dir); up != dir; dir, up = up, filepath.Dir(up) {
		if unix.Stat(dir, &here) != nil || unix.Stat(up, &above) != nil || here.Dev != above.Dev {
			break
		}
	}
	return dir
}
