//go:build unix

package plugin

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"github.com/flowtally/flowtally/dataplane"
)

// lockFile takes the lock at path, which lives as long as the file is open. The holder may remove the file, so the
// locked file must still be the one that path names.
func lockFile(path string) (*os.File, error) {
	for {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
		if err != nil {
			return nil, err
		}
		if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
			f.Close()
			if errors.Is(err, syscall.EWOULDBLOCK) {
				return nil, fmt.Errorf("%w: another process of flowtally serves it: stop that one, or choose another instance name", dataplane.ErrInUse)
			}
			return nil, fmt.Errorf("locking %s: %w", path, err)
		}
		locked, err := f.Stat()
		if err != nil {
			f.Close()
			return nil, err
		}
		if there, err := os.Lstat(path); err == nil && os.SameFile(locked, there) {
			return f, nil
		}
		f.Close() // removed meanwhile by the one that held it
	}
}

func ownerOf(info fs.FileInfo) (uid int, known bool) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return int(st.Uid), true
}
