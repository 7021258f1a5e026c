package shm

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// makeLease makes the page of waiters beside o.Path, or goes on with the one
// that is there, so that who has it open is heard on. The writer's lock is held.
func makeLease(o Options) (*lease, error) {
	if o.WaitGroup < 0 {
		return nil, nil
	}
	path := waitPath(o.Path)
	f, err := openWaitFile(path)
	if err != nil {
		return nil, fmt.Errorf("%s: making the page of waiters: %w", path, err)
	}
	l, err := layLease(path, f, o)
	if err != nil {
		f.Close()
		return nil, err
	}
	return l, nil
}

// layLease makes f the page that o asks for.
func layLease(path string, f *os.File, o Options) (*lease, error) {
	group := o.WaitGroup
	if group == 0 { // one that an earlier run was given is taken back
		group = os.Getegid()
	}
	if err := f.Chown(-1, group); err != nil {
		return nil, fmt.Errorf("%s: giving the page of waiters to group %d: %w: run the writer as a member (SupplementaryGroups= of a systemd unit) or with CAP_CHOWN, or name another group: %w",
			path, group, err, ErrPermission)
	}
	if err := f.Chmod(0o660); err != nil {
		return nil, fmt.Errorf("%s: setting mode of the page of waiters: %w", path, err)
	}
	// Its length, whatever waiters have made of it.
	if err := f.Truncate(waitLength); err != nil {
		return nil, fmt.Errorf("%s: setting length of the page of waiters: %w", path, err)
	}
	if err := unix.Fallocate(int(f.Fd()), 0, 0, waitLength); err != nil {
		return nil, fmt.Errorf("%s: reserving the page of waiters: %w", path, err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return nil, fmt.Errorf("%s: reading status of the page of waiters: %w", path, err)
	}
	m, err := mapFile(f, waitLength, false)
	if err != nil {
		return nil, err
	}
	return newLease(path, f, st.Blocks, m, o.Logger), nil
}

// openWaitFile opens the page, or makes it, with a mode that lets nobody in yet.
// The directory is the writer's alone, so what else is in its place is the
// writer's to replace.
func openWaitFile(path string) (*os.File, error) {
	f, st, err := openRegular(path, unix.O_RDWR)
	if err == nil && st.Uid == uint32(os.Geteuid()) && st.Nlink == 1 {
		return f, nil
	}
	if err == nil {
		f.Close()
	}
	if !errors.Is(err, fs.ErrNotExist) {
		if err := os.Remove(path); err != nil {
			return nil, err
		}
	}
	return os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
}
