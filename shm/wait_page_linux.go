package shm

import (
	"fmt"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// makeWaker makes the page of waiters beside o.Path, or reuses an existing one; the caller then calls serve to wake sleepers on
// it. The caller must hold the writer's lock. With a negative WaitGroup the result is nil.
func makeWaker(o Options) (*waker, error) {
	if o.WaitGroup < 0 {
		return nil, nil
	}
	k := &waker{
		path:  waitPath(o.Path),
		mode:  0o600,
		group: os.Getegid(),
		log:   o.Logger,
	}
	if o.WaitGroup > 0 {
		k.mode = 0o640
		k.group = o.WaitGroup
	}

	p := k.leftPage()
	if p == nil {
		var err error
		if p, err = k.newPage(0); err != nil {
			return nil, err
		}
	}
	k.page.Store(p)

	k.late = time.AfterFunc(time.Hour, func() {
		k.owing.Store(false) // before the wake: a cycle that this wake may miss must set the timer again
		k.wake()
	})
	k.late.Stop()
	return k, nil
}

// leftPage maps the page of an earlier writer. It returns nil unless this user owns the file, it has the wanted mode and group
// and only one name, and its length and header are those of a page.
func (k *waker) leftPage() *waitPage {
	f, st, err := openRegular(k.path, unix.O_RDWR)
	if err != nil {
		return nil
	}
	defer f.Close()

	ours := st.Uid == uint32(os.Geteuid()) && st.Gid == uint32(k.group) && fs.FileMode(st.Mode&0o7777) == k.mode
	if !ours || st.Nlink != 1 || st.Size != pageSize {
		return nil
	}
	p, _ := mapPage(f, st, true) // nil with an error
	return p
}

// keep makes the page anew if another process has removed, replaced, cut short or overwritten it. A sleeper on the old page
// finds the new one within longestSleep. keep runs under the writer's mu, so cycles wait for it.
func (k *waker) keep() {
	if k == nil {
		return
	}
	was := k.page.Load()
	var st unix.Stat_t
	if unix.Lstat(k.path, &st) == nil && idOf(&st) == was.id && st.Size == pageSize && was.begins(pageHeader(k.generation)) {
		return
	}

	p, err := k.newPage(k.generation)
	if err != nil {
		if !k.told {
			k.log.Warn("waiters look once per cycle: the page of waiters is gone", "path", k.path, "err", err)
		}
		k.told = true
		return
	}
	k.log.Warn("the page of waiters was removed, replaced, cut short or overwritten: made anew", "path", k.path)
	k.told = false

	k.page.Store(p)
	was.serve(0)
}

// newPage makes a page. It replaces any file of that name.
func (k *waker) newPage(generation uint64) (*waitPage, error) {
	d, err := newDraft(k.path, pageSize, 0o600, nil, hook(nil).step)
	if err != nil {
		return nil, fmt.Errorf("making the page of waiters: %w", err)
	}
	defer d.f.Close()
	p, err := k.fill(d.f, generation)
	if err == nil {
		_ = unix.Rmdir(k.path) // the rename below replaces everything but a directory
		err = d.name()
	}
	if err != nil {
		d.drop()
		return nil, fmt.Errorf("%s: making the page of waiters: %w", k.path, err)
	}
	return p, nil
}

// fill gives a draft of the page its header, its group and its mode. The caller names it afterwards, so no process sees the
// page without its header, or with other permissions.
func (k *waker) fill(f *os.File, generation uint64) (*waitPage, error) {
	if _, err := f.WriteAt(pageHeader(generation), 0); err != nil {
		return nil, err
	}
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
	return mapPage(f, &st, true)
}
