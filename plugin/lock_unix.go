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

// lockFile creates and locks the file at path until it is closed. The previous holder may have removed the file just before
// it was locked, so lockFile checks that the path still leads to it.
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
		f.Close() // the previous holder has removed it: try again with a new file
	}
}

func ownerOf(info fs.FileInfo) (uid int, known bool) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return int(st.Uid), true
}
