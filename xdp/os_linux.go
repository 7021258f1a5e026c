package xdp

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/flowtally/flowtally/internal/trust"
)

func supported() error { return nil }

// lockDir makes the pins' directory and locks it for as long as the file stays
// open, which is at most as long as the process lives. A directory that another user
// could have made, or could move away, is refused.
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
	if err := checkDir(f, dir); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// trustedSoFar checks the part of the path to the pins' directory that exists, so that
// no directory is made below a directory of another user, nor off a bpffs.
func trustedSoFar(dir string) error {
	for at := dir; ; at = filepath.Dir(at) {
		f, err := openTrusted(at)
		if err == nil {
			defer f.Close()
			if !onBPFFS(f) && !strings.HasPrefix(dir, bpffs+"/") { // where none is mounted there, mkdir says so
				return notOnBPFFS(dir)
			}
			return nil
		}
		if !errors.Is(err, os.ErrNotExist) || at == filepath.Dir(at) {
			return err
		}
	}
}

// openTrusted opens a directory that, with all directories above it, belongs to root or
// to the user of this process, and that no other user can replace.
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

// checkDir locks the pins' directory, which must be on a bpffs and writable by its owner alone.
func checkDir(f *os.File, dir string) error {
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

// xdpProgram is the id of the XDP program of an interface, or 0.
func xdpProgram(ifindex int) uint32 {
	l, err := netlink.LinkByIndex(ifindex)
	if err != nil || l.Attrs().Xdp == nil {
		return 0
	}
	return l.Attrs().Xdp.ProgId
}

// interfaceByName asks the kernel for one interface. net.InterfaceByName lists all of them, which takes
// milliseconds on a host with a thousand. The kernel also finds an interface by an alternative name, which is not
// one here: events have the name alone. Without an interface the error is ErrNotFound.
func interfaceByName(name string) (*net.Interface, device, error) {
	l, err := netlink.LinkByName(name)
	if missing := (netlink.LinkNotFoundError{}); errors.As(err, &missing) || err == nil && l.Attrs().Name != name {
		return nil, device{}, fmt.Errorf("%w: %w", ErrNotFound, &net.OpError{Op: "route", Net: "ip+net", Err: errors.New("no such network interface")})
	}
	if err != nil {
		return nil, device{}, fmt.Errorf("asking for interface %s: %w", name, err)
	}
	a := l.Attrs()
	dev := device{name: name, link: a.EncapType, kind: l.Type()}
	if a.Xdp != nil && a.Xdp.Attached {
		dev.program, dev.several = a.Xdp.ProgId, a.Xdp.ProgId == 0
	}
	return &net.Interface{Index: a.Index, Name: name}, dev, nil
}

// nameOf asks the kernel for the name of an interface. It is "" without an interface of the index.
func nameOf(ifindex int) string {
	l, err := netlink.LinkByIndex(ifindex)
	if err != nil {
		return ""
	}
	return l.Attrs().Name
}
