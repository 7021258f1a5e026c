//go:build unix

package shm

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/flowtally/flowtally/internal/space"
)

// fileStore is a mirror's file.
type fileStore struct {
	*os.File
	writable bool
	space    space.Reserve // nil: fallocate
}

func (s fileStore) window(off, n uint64) (*mapping, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(s.Fd()), &st); err != nil {
		return nil, fmt.Errorf("%s: reading status: %w", s.Name(), err)
	}
	if uint64(st.Size) < off+n {
		if err := s.foreign(); off == 0 && err != nil {
			return nil, err
		}
		return nil, fmt.Errorf("%d of %d bytes are there: %w", st.Size, off+n, ErrTruncated)
	}
	return mapFile(s.File, off, n, s.writable)
}

// foreign returns an error if the first bytes are not those of a mirror. A file with fewer bytes may still become one.
func (s fileStore) foreign() error {
	first := make([]byte, len(Magic))
	n, err := s.ReadAt(first, 0)
	if err != nil && !errors.Is(err, io.EOF) || string(first[:n]) == Magic[:n] {
		return nil
	}
	return foreign(first[:n])
}

// fileID identifies a file. No other file gets the same one as long as a process has this one open or mapped.
type fileID struct{ dev, ino uint64 }

// idOf returns the identity of a file whose status is st.
func idOf(st *unix.Stat_t) fileID { return fileID{dev: uint64(st.Dev), ino: st.Ino} }
