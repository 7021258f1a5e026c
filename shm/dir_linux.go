package shm

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/flowtally/flowtally/internal/trust"
)

// prepareDir makes dir if it is missing, and reports whether it did. It refuses a directory that another user owns, may write
// to or could have put there, because that user could replace the mirror by another file.
func prepareDir(dir string, log *slog.Logger) (made bool, err error) {
	if err := trustParents(dir); err != nil {
		return false, err
	}

	err = os.Mkdir(dir, 0o755)
	switch {
	case err == nil:
		if err := os.Chmod(dir, 0o755); err != nil { // the umask may have taken bits from Mkdir's mode
			return true, fmt.Errorf("%s: setting mode: %w", dir, err)
		}
		made = true
	case !errors.Is(err, fs.ErrExist):
		return false, fmt.Errorf("%s: making the mirror's directory: %w: make it yourself, mode 0755, or name another", dir, err)
	}

	if err := refuseDir(dir); err != nil {
		return made, err
	}
	if !onTmpfs(dir) {
		log.Warn("mirror is not on a tmpfs: its writer may wait for the disk", "dir", dir)
	}
	return made, nil
}

// refuseDir returns an error for a directory that another user owns or may write to.
func refuseDir(dir string) error {
	var st unix.Stat_t
	if err := unix.Lstat(dir, &st); err != nil {
		return fmt.Errorf("%s: reading status of the mirror's directory: %w", dir, err)
	}

	uid := uint32(os.Geteuid())
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFDIR:
		next := "remove it, or name another"
		if st.Uid != uid {
			next = otherPlace(dir, st.Uid, uid)
		}
		return fmt.Errorf("%s: using as the mirror's directory: not a directory (links are not followed), and of user %d: %s: %w", dir, st.Uid, next, ErrPermission)
	case st.Uid != uid:
		return fmt.Errorf("%s: using as the mirror's directory: belongs to user %d, not to user %d, the writer of the mirror: %s: %w",
			dir, st.Uid, uid, otherPlace(dir, st.Uid, uid), ErrPermission)
	case st.Mode&unix.S_ISVTX != 0 && st.Mode&0o022 != 0:
		return fmt.Errorf("%s: using as the mirror's directory: all users may write to it: name a directory below it, as %s/flowtally: %w",
			dir, dir, ErrPermission)
	case st.Mode&0o022 != 0:
		return fmt.Errorf("%s: using as the mirror's directory: mode %#o lets others write to it: chmod 0755 it or name another: %w",
			dir, st.Mode&0o7777, ErrPermission)
	}
	return nil
}

// otherPlace returns the next step for user uid if owner owns dir. It does not propose to give dir to uid: owner's files would
// stay in it, and a process of owner could take the name again.
func otherPlace(dir string, owner, uid uint32) string {
	switch {
	case dir == shmDir && uid == 0:
		return "any user can make that directory, only root this one: mkdir -p " + runDir + " && mount -t tmpfs -o mode=0755 tmpfs " + runDir + "; or name another"
	case dir == shmDir:
		return "set XDG_RUNTIME_DIR to a directory of your own on a tmpfs, or name another"
	case owner == 0:
		return "run as root, or name another (counting by XDP takes CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON)"
	}
	return fmt.Sprintf("run as user %d, or name another", owner)
}

// trustParents refuses a directory if a user other than root and the process's own could replace it, going by the owner and
// mode of the directories above. The caller must make nothing in it then.
func trustParents(dir string) error {
	f, why, err := trust.Open(filepath.Dir(dir), func(uid uint32) bool { return uid == 0 || uid == uint32(os.Geteuid()) })
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil // making dir will fail, and say why
	case err != nil:
		return fmt.Errorf("%s: looking at the directories above the mirror's: %w", dir, err)
	case why != "":
		return fmt.Errorf("%s: using as the mirror's directory: %s; or name another: %w", dir, why, ErrPermission)
	}
	return f.Close()
}

// onTmpfs reports whether dir is, or would be made, on a tmpfs.
func onTmpfs(dir string) bool {
	var st unix.Statfs_t
	err := unix.Statfs(dir, &st) // of the tmpfs, if one is mounted at dir
	if errors.Is(err, fs.ErrNotExist) {
		err = unix.Statfs(filepath.Dir(dir), &st)
	}
	return err == nil && (st.Type == unix.TMPFS_MAGIC || st.Type == unix.RAMFS_MAGIC)
}
