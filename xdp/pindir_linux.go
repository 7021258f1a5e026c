package xdp

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/flowtally/flowtally/internal/trust"
	"github.com/flowtally/flowtally/probe"
)

// instancesDir is the parent of the default directories of pins. Nobody removes it when the last instance ends: a confined process
// or a systemd unit may write only to the directory that existed when it started, and not to a new one of the same name.
const instancesDir = "/sys/fs/bpf/flowtally"

// lockDir creates the directory of the pins and locks it until the file is closed or the process ends. It refuses a directory that
// another user may have made, or could replace.
func lockDir(dir string) (*os.File, error) {
	if err := trustedSoFar(dir); err != nil {
		return nil, err
	}
	err := os.MkdirAll(dir, 0o700)
	if err != nil {
		if errors.Is(err, unix.EROFS) && strings.HasPrefix(dir, instancesDir+"/") {
			return nil, fmt.Errorf("making the directory of the pins: %w: a unit may write to it if it is there when the unit starts: systemd-tmpfiles --create flowtally.conf", err)
		}
		if !errors.Is(err, os.ErrPermission) && strings.HasPrefix(dir, bpffs+"/") {
			err = cmp.Or(probeBPFFS(), err)
		}
		return nil, fmt.Errorf("making the directory of the pins: %w", explain(err))
	}
	f, err := openTrusted(dir)
	if err != nil {
		return nil, err
	}
	if err := lockChecked(f, dir); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// trustedSoFar checks the existing part of a path before lockDir creates the rest. So we create nothing below another user's
// directory, and nothing outside of a bpffs.
func trustedSoFar(dir string) error {
	for at := dir; ; at = filepath.Dir(at) {
		f, err := openTrusted(at)
		if err == nil {
			defer f.Close()
			if !onBPFFS(f) && !strings.HasPrefix(dir, bpffs+"/") { // if none is mounted at bpffs, MkdirAll fails and lockDir explains
				return notOnBPFFS(dir)
			}
			return nil
		}
		if !errors.Is(err, os.ErrNotExist) || at == filepath.Dir(at) {
			return err
		}
	}
}

// openTrusted opens a directory. It refuses unless the whole path belongs to root or to the user of this process, and no other user
// can replace a part of it.
func openTrusted(dir string) (*os.File, error) {
	path, why, err := trust.Open(dir, func(uid uint32) bool { return uid == 0 || int(uid) == os.Geteuid() })
	if err == nil && why != "" {
		err = fmt.Errorf("%w: %s; or name another directory under xdp.pin_dir", ErrInvalid, why)
	}
	if err != nil {
		return nil, fmt.Errorf("looking at the directory of the pins %s: %w", dir, err)
	}
	defer path.Close()
	fd, err := unix.Openat(int(path.Fd()), ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("opening the directory of the pins %s: %w", dir, explain(err))
	}
	return os.NewFile(uintptr(fd), dir), nil
}

// lockChecked locks the directory of the pins. It must be on a bpffs, and only its owner may write to it.
func lockChecked(f *os.File, dir string) error {
	if !onBPFFS(f) {
		return notOnBPFFS(dir)
	}
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("looking at the directory of the pins: %w", err)
	}
	if mode := info.Mode().Perm(); mode&0o022 != 0 {
		return fmt.Errorf("looking at the directory of the pins %s: %w: mode %04o lets other users write to it: chmod 0700 %s",
			dir, ErrInvalid, mode, trust.Quote(dir))
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		if errors.Is(err, unix.EWOULDBLOCK) {
			return fmt.Errorf("locking %s: %w; stop it, or choose another instance", dir, ErrInUse)
		}
		return fmt.Errorf("locking %s: %w", dir, err)
	}
	return nil
}

// bpffs is the usual mount point of a bpffs.
const bpffs = "/sys/fs/bpf"

// mountBPFFS returns a command that mounts a bpffs. Only root may write to it, because flowtally trusts the pins it finds.
func mountBPFFS(at string) string { return "mount -t bpf -o mode=0700 bpf " + at }

// onBPFFS reports whether a directory is on a bpffs.
func onBPFFS(dir *os.File) bool {
	var fs unix.Statfs_t
	return unix.Fstatfs(int(dir.Fd()), &fs) == nil && fs.Type == unix.BPF_FS_MAGIC
}

// notOnBPFFS returns the error for a directory outside of a bpffs. It proposes a mount at the usual place only. A mount on the
// directory itself could hide files, for example in /tmp.
func notOnBPFFS(dir string) error {
	step := "name a directory below " + bpffs + " under xdp.pin_dir, or leave xdp.pin_dir out"
	if missing := (*probe.UnsupportedError)(nil); errors.As(probeBPFFS(), &missing) {
		step += "; and mount one there: " + missing.Fix
	}
	return fmt.Errorf("looking at the directory of the pins %s: %w: it is not on a bpffs; %s", dir, ErrInvalid, step)
}
