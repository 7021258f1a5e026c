package shm

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"

	"golang.org/x/sys/unix"
)

// prepareDir makes dir if it is missing, and refuses one that somebody else
// owns or may write to: they could put another file in the mirror's place.
func prepareDir(dir string, log *slog.Logger) (made bool, err error) {
	err = os.Mkdir(dir, 0o755)
	switch {
	case err == nil:
		if err := os.Chmod(dir, 0o755); err != nil { // the umask has had its say
			return true, fmt.Errorf("%s: setting mode: %w", dir, err)
		}
		made = true
	case !errors.Is(err, fs.ErrExist):
		return false, fmt.Errorf("%s: making the mirror's directory: %w: make it yourself, mode 0755, or name another", dir, err)
	}
	var st unix.Stat_t
	if err := unix.Lstat(dir, &st); err != nil {
		return made, fmt.Errorf("%s: reading status of the mirror's directory: %w", dir, err)
	}
	uid := uint32(os.Geteuid())
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFDIR:
		return made, fmt.Errorf("%s: using as the mirror's directory: not a directory (links are not followed): %w", dir, ErrPermission)
	case st.Uid == 0 && uid != 0:
		return made, fmt.Errorf("%s: using as the mirror's directory: belongs to root, not to user %d who writes the mirror: run as root, or name another (counting by XDP takes CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON): %w",
			dir, uid, ErrPermission)
	case st.Uid != uid:
		return made, fmt.Errorf("%s: using as the mirror's directory: belongs to user %d, not to user %d who writes the mirror: chown it or name another: %w",
			dir, st.Uid, uid, ErrPermission)
	case st.Mode&unix.S_ISVTX != 0 && st.Mode&0o022 != 0:
		return made, fmt.Errorf("%s: using as the mirror's directory: everybody may write to it: name a directory below it, as %s/flowtally: %w",
			dir, dir, ErrPermission)
	case st.Mode&0o022 != 0:
		return made, fmt.Errorf("%s: using as the mirror's directory: mode %#o lets others write to it: chmod 0755 it or name another: %w",
			dir, st.Mode&0o7777, ErrPermission)
	}
	var fsst unix.Statfs_t
	if err := unix.Statfs(dir, &fsst); err == nil && fsst.Type != unix.TMPFS_MAGIC && fsst.Type != unix.RAMFS_MAGIC {
		log.Warn("mirror is not on a tmpfs: its writer may wait for the disk", "dir", dir)
	}
	return made, nil
}

// takeLock takes the writer's lock of path. The kernel drops it with the process.
// A lock on a file that lost its name meanwhile, to somebody who clears up, locks
// nobody out: the one that has the name is taken then.
func takeLock(path string, step func(string)) (*os.File, error) {
	name := lockPath(path)
	for {
		f, err := lockFile(path, name, step)
		if err != nil {
			return nil, err
		}
		var held, named unix.Stat_t
		if err := unix.Fstat(int(f.Fd()), &held); err != nil {
			f.Close()
			return nil, fmt.Errorf("%s: reading status of the writer's lock: %w", name, err)
		}
		err = unix.Lstat(name, &named)
		if err == nil && idOf(&held) == idOf(&named) {
			return f, nil
		}
		f.Close()
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("%s: reading status of the writer's lock: %w", name, err)
		}
	}
}

func lockFile(path, name string, step func(string)) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, fmt.Errorf("%s: opening the writer's lock: %w", name, err)
	}
	step("lock-opened")
	for {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err != unix.EINTR {
			break
		}
	}
	if err == nil {
		return f, nil
	}
	f.Close()
	if err == unix.EWOULDBLOCK {
		return nil, fmt.Errorf("%s: taking the mirror: another process holds %s: stop it, or give this instance another name: %w", path, name, ErrInUse)
	}
	return nil, fmt.Errorf("%s: taking the writer's lock: %w", name, err)
}
