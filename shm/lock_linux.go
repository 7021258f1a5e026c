package shm

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// takeLock locks the file NAME.lock of the mirror at path. The kernel unlocks it when the process ends.
//
// The lock keeps other writers out only as long as its file has the name. Somebody who cleans up may remove the name before
// takeLock has the lock, so it checks the name afterwards, and tries again.
func takeLock(path string, step func(string)) (*os.File, error) {
	name := lockPath(path)
	for {
		f, held, err := lockFile(path, name, step)
		if errors.Is(err, fs.ErrNotExist) {
			// Another writer made the directory, could not start, and removed it after we had checked it. Make it again. Once
			// our lock is in it, the directory is not empty, and nobody removes it any more.
			if _, err = prepareDir(filepath.Dir(path), slog.New(slog.DiscardHandler)); err == nil {
				continue
			}
		}
		if err != nil {
			return nil, err
		}

		var named unix.Stat_t
		err = unix.Lstat(name, &named)
		if err == nil && held == idOf(&named) {
			return f, nil
		}
		f.Close()
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("%s: reading status of the writer's lock: %w", name, err)
		}
	}
}

// lockFile locks the file of that name, and returns the file's identity.
func lockFile(path, name string, step func(string)) (_ *os.File, id fileID, err error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, id, fmt.Errorf("%s: opening the writer's lock: %w", name, err)
	}
	step("lock-opened")

	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil || st.Uid != uint32(os.Geteuid()) {
		f.Close()
		if err == nil { // the other user may hold it for ever
			err = fmt.Errorf("belongs to user %d, not to user %d, the writer of the mirror: remove it: %w", st.Uid, os.Geteuid(), ErrPermission)
		}
		return nil, id, fmt.Errorf("%s: taking the writer's lock: %w", name, err)
	}

	for err = unix.EINTR; err == unix.EINTR; {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	}
	if err == nil {
		return f, idOf(&st), nil
	}
	f.Close()
	if err == unix.EWOULDBLOCK {
		return nil, id, fmt.Errorf("%s: taking the mirror: another process holds %s: stop it, or give this instance another name: %w", path, name, ErrInUse)
	}
	return nil, id, fmt.Errorf("%s: taking the writer's lock: %w", name, err)
}

// keepLock takes the lock again if its file has lost the name, because the old lock keeps no other writer out. The caller holds
// growing.
func (w *Writer) keepLock() error {
	w.mu.Lock()
	closed := w.closed
	w.mu.Unlock()
	if closed {
		return ErrClosed
	}

	var held, named unix.Stat_t
	if err := unix.Fstat(int(w.lock.Fd()), &held); err != nil {
		return fmt.Errorf("%s: reading status of the writer's lock: %w", w.lock.Name(), err)
	}
	if unix.Lstat(w.lock.Name(), &named) == nil && idOf(&held) == idOf(&named) {
		return nil
	}

	lock, err := takeLock(w.path, w.step)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return errors.Join(ErrClosed, lock.Close())
	}
	old := w.lock
	w.lock = lock
	return old.Close()
}
