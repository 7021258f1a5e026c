package shm

import (
	"crypto/rand"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// makeWaker makes the page of waiters beside o.Path, or goes on with the one that is
// there if it is just as o asks: its sleepers are woken then (waker.serve). The writer's lock is held.
func makeWaker(o Options) (*waker, error) {
	if o.WaitGroup < 0 {
		return nil, nil
	}
	k := &waker{path: waitPath(o.Path), mode: 0o600, group: os.Getegid(), log: o.Logger, keptAt: Now()}
	if o.WaitGroup > 0 {
		k.mode, k.group = 0o640, o.WaitGroup
	}
	p := k.leftPage()
	if p == nil {
		var err error
		if p, err = k.newPage(0); err != nil {
			return nil, err
		}
	}
	k.page.Store(p)
	k.setTimer()
	return k, nil
}

// leftPage maps the page that an earlier writer left, or returns nil when it is not a
// file of this user with the mode and group that are wanted, one name, and a header.
func (k *waker) leftPage() *waitPage {
	f, st, err := openRegular(k.path, unix.O_RDWR)
	if err != nil {
		return nil
	}
	defer f.Close()
	if st.Uid != uint32(os.Geteuid()) || st.Gid != uint32(k.group) || fs.FileMode(st.Mode&0o7777) != k.mode || st.Nlink != 1 || st.Size != pageSize {
		return nil
	}
	m, err := mapFile(f, 0, pageSize, true)
	if err != nil {
		return nil
	}
	m.id = idOf(st)
	p, err := attachPage(k.path, m)
	if err != nil {
		return nil
	}
	return p
}

// keep makes the page anew where it was removed, replaced, cut short or overwritten. A sleeper
// on the old one finds the new one within longestSleep.
func (k *waker) keep() {
	was := k.page.Load()
	var st unix.Stat_t
	if err := unix.Lstat(k.path, &st); err == nil && idOf(&st) == was.m.id && st.Size == pageSize {
		if _, err := attachPage(k.path, was.m); err == nil {
			if s, err := was.load(); err == nil && s.generation == k.generation {
				return
			}
		}
	}
	p, err := k.newPage(k.generation)
	if err != nil {
		if !k.told {
			k.log.Warn("whoever waits for a counter looks once per cycle: the page of waiters is gone", "path", k.path, "err", err)
		}
		k.told = true
		return
	}
	k.log.Warn("the page of waiters was removed, replaced, cut short or overwritten: made anew", "path", k.path)
	k.told = false
	k.page.Store(p)
	was.serve(0)
}

// newPage makes the page under another name, and gives it its header, its group and its
// mode before its name: no process sees it there with other rights, or without its header.
func (k *waker) newPage(generation uint64) (p *waitPage, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("%s: making the page of waiters: %w", k.path, err)
		}
	}()
	tmp := filepath.Join(filepath.Dir(k.path), tempPrefix(k.path)+strings.ToLower(rand.Text()))
	f, err := os.OpenFile(tmp, os.O_RDWR|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	defer func() {
		if err != nil {
			_ = os.Remove(tmp)
		}
	}()
	if err := unix.Fallocate(int(f.Fd()), 0, 0, pageSize); err != nil {
		return nil, fmt.Errorf("reserving %d bytes: %w", pageSize, err)
	}
	m, err := mapFile(f, 0, pageSize, true)
	if err != nil {
		return nil, err
	}
	p = formatPage(m, generation)
	if err := f.Chown(-1, k.group); err != nil {
		return nil, fmt.Errorf("giving it to group %d: %w: run the writer as a member (SupplementaryGroups= of a systemd unit) or with CAP_CHOWN, or name another group: %w",
			k.group, err, ErrPermission)
	}
	if err := f.Chmod(k.mode); err != nil {
		return nil, fmt.Errorf("setting its mode: %w", err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return nil, fmt.Errorf("reading its status: %w", err)
	}
	m.id = idOf(&st)
	// A rename replaces everything but a directory. What stands in the page's place is the
	// writer's, whose directory it is.
	if st, err := os.Lstat(k.path); err == nil && st.IsDir() {
		if err := os.Remove(k.path); err != nil {
			return nil, err
		}
	}
	if err := os.Rename(tmp, k.path); err != nil {
		return nil, err
	}
	return p, nil
}
