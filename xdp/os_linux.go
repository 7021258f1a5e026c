package xdp

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

func supported() error { return nil }

// lockDir makes the pins' directory and locks it for as long as the file stays
// open, which is at most as long as the process lives.
func lockDir(dir string) (*os.File, error) {
	var fs unix.Statfs_t
	if err := os.MkdirAll(dir, 0o700); err != nil {
		if !errors.Is(err, os.ErrPermission) && strings.HasPrefix(dir, bpffs+"/") {
			err = cmp.Or(probeBPFFS(), err)
		}
		return nil, fmt.Errorf("making the directory of the pins: %w", explain(err))
	}
	if err := unix.Statfs(dir, &fs); err != nil {
		return nil, fmt.Errorf("looking at the directory of the pins %s: %w", dir, err)
	}
	if fs.Type != unix.BPF_FS_MAGIC {
		return nil, fmt.Errorf("looking at the directory of the pins %s: %w: it is not on a bpffs; %s",
			dir, ErrInvalid, mountBPFFS(filepath.Dir(dir)))
	}
	f, err := os.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("opening the directory of the pins: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("locking %s: %w; stop it, or choose another instance", dir, ErrInUse)
		}
		return nil, fmt.Errorf("locking %s: %w", dir, err)
	}
	return f, nil
}

// xdpProgram is the id of the XDP program of an interface, or 0.
func xdpProgram(ifindex int) uint32 {
	l, err := netlink.LinkByIndex(ifindex)
	if err != nil || l.Attrs().Xdp == nil {
		return 0
	}
	return l.Attrs().Xdp.ProgId
}

// deviceOf asks the kernel of an interface. One that is gone is refused by what comes next.
func deviceOf(ifindex int) device {
	l, err := netlink.LinkByIndex(ifindex)
	if err != nil {
		return device{}
	}
	return device{name: l.Attrs().Name, link: l.Attrs().EncapType, kind: l.Type()}
}
