package shm

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// Create makes the mirror at o.Path, or takes over the one that is there: its
// counters, handles, totals and history go on, whatever point its writer was
// killed at. When o asks for more than it holds, a larger file with its contents
// takes its name. The caller is the only writer until Close: ErrInUse.
func Create(o Options) (w *Writer, err error) {
	o = o.withDefaults()
	want, err := plan(o.Counters, o.LatencyCounters, o.History)
	if err != nil {
		return nil, fmt.Errorf("%s: creating mirror: %w", o.Path, err)
	}
	madeDir, err := prepareDir(filepath.Dir(o.Path), o.Logger)
	defer func() {
		if err != nil && madeDir {
			_ = os.Remove(filepath.Dir(o.Path))
		}
	}()
	if err != nil {
		return nil, err
	}
	if err := refuseForeign(o); err != nil {
		return nil, err
	}
	lock, err := takeLock(o.Path, o.step)
	if err != nil {
		return nil, err
	}
	if w, err = createBeside(o, want, lock); err != nil {
		if _, there := os.Lstat(o.Path); errors.Is(there, fs.ErrNotExist) {
			_ = os.Remove(waitPath(o.Path))
			_ = os.Remove(lock.Name()) // last, and while it is held; there is no mirror to lock
		}
		lock.Close()
		return nil, err
	}
	w.madeDir = madeDir
	return w, nil
}

// refuseForeign refuses a file that never was a mirror before anything is made beside
// it: its lock might be another program's. Whatever else a mirror must be is looked at
// under the lock.
func refuseForeign(o Options) error {
	if o.Replace {
		return nil
	}
	f, st, err := openRegular(o.Path, unix.O_RDONLY)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	}
	defer f.Close()
	if st.Size < headerSize {
		return refused(o.Path, tooShort(st.Size))
	}
	var first [len(Magic)]byte
	if _, err := f.ReadAt(first[:], 0); err != nil {
		return refused(o.Path, err)
	}
	if string(first[:]) != Magic {
		return refused(o.Path, foreign(first[:]))
	}
	return nil
}

func refused(path string, err error) error {
	return fmt.Errorf("%s: taking over mirror: %w: the file was left as it is: move it away", path, err)
}

// createBeside makes what stands beside the mirror first: what was asked for
// and cannot be had leaves the mirror as it is.
func createBeside(o Options, want geometry, lock *os.File) (*Writer, error) {
	k, err := makeWaker(o)
	switch {
	case err != nil && o.WaitGroup > 0:
		return nil, err
	case err != nil:
		o.Logger.Warn("whoever waits for a counter will look once per cycle", "path", o.Path, "err", err)
	}
	w, err := createLocked(o, want, lock)
	if err != nil {
		return nil, err
	}
	w.waker = k
	k.serve(w.Generation())
	return w, nil
}

func createLocked(o Options, want geometry, lock *os.File) (*Writer, error) {
	sweep(o.Path, o.Logger)
	m, v, err := openExisting(o)
	defer runtime.KeepAlive(m)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return createFile(o, want, nil, lock)
	case err != nil && o.Replace && !errors.Is(err, ErrPermission):
		o.Logger.Warn("replacing a file that is not a valid mirror", "path", o.Path, "reason", err)
		return createFile(o, want, nil, lock)
	case err != nil:
		return nil, err
	}
	have := v.geometry()
	if all := have.union(want); all != have {
		o.Logger.Info("growing mirror", "path", o.Path, "counters", all.counters, "latency", all.records, "history", all.history)
		return createFile(o, all, v, lock)
	}
	return newWriter(o, m, v, lock)
}

// openExisting maps the mirror at o.Path for writing and makes sure that it is
// whole: nothing is taken over that this program does not understand.
func openExisting(o Options) (*mapping, *view, error) {
	f, st, err := openRegular(o.Path, unix.O_RDWR)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	if uid := uint32(os.Geteuid()); st.Uid != uid {
		return nil, nil, fmt.Errorf("%s: taking over mirror: belongs to user %d, not to user %d: remove it or run as its owner: %w",
			o.Path, st.Uid, uid, ErrPermission)
	}
	var v *view
	if st.Size < headerSize {
		return nil, nil, refused(o.Path, tooShort(st.Size))
	}
	m, err := mapFile(f, st.Size, true)
	if err != nil {
		return nil, nil, err
	}
	err = Guard(func() (err error) {
		if v, err = attach(m.b); err != nil {
			return err
		}
		if ps := v.check(); len(ps) > 0 {
			return fmt.Errorf("%d broken invariants, the first: %v: %w", len(ps), ps[0], ErrFormat)
		}
		return nil
	})
	if err != nil {
		return nil, nil, refused(o.Path, err)
	}
	if err := f.Chmod(o.Mode); err != nil {
		return nil, nil, fmt.Errorf("%s: setting mode: %w", o.Path, err)
	}
	return m, v, nil
}

// createFile makes a mirror whole under another name, with the contents of old
// if there is one, and gives it the name of o.Path.
func createFile(o Options, g geometry, old *view, lock *os.File) (w *Writer, err error) {
	_, length := g.sections()
	d, err := newDraft(o.Path, length, o.Mode, o.step)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			d.drop()
		}
	}()
	v, err := format(d.m.b, g, time.Now().UnixNano())
	if err != nil {
		return nil, fmt.Errorf("%s: formatting mirror: %w", o.Path, err)
	}
	o.step("create-formatted")
	if old != nil {
		v.carry(old)
	}
	o.step("create-carried")
	if w, err = newWriter(o, d.m, v, lock); err != nil {
		return nil, err
	}
	v.ready()
	o.step("create-ready")
	var state State // of old
	if old != nil {
		// Before the rename: a reader that looks too early finds this file again
		// and waits for the successor; were it told afterwards, a kill in between
		// would leave it with a file that nobody writes.
		state = State(old.hdr.state)
		old.supersede(v)
		o.step("create-superseded")
	}
	if err := d.name(); err != nil {
		if old != nil {
			old.reinstate(state)
		}
		return nil, err
	}
	o.step("create-renamed")
	return w, nil
}
