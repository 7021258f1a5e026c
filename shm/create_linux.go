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

	"github.com/flowtally/flowtally/shm/words"
)

// Create makes the mirror at o.Path, or takes over an existing one: its counters, handles, totals and history continue, even
// if its writer was killed at any point. ErrInUse: another writer has the mirror. Otherwise the caller is its only writer until
// Close.
func Create(o Options) (w *Writer, err error) {
	o = o.withDefaults()
	history, err := ringRecords(o.History)
	if err == nil {
		err = o.valid()
	}
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
	if w, err = createBeside(o, history, lock); err != nil {
		if _, statErr := os.Lstat(o.Path); errors.Is(statErr, fs.ErrNotExist) { // no mirror, so nothing to lock
			_ = os.Remove(waitPath(o.Path))
			_ = os.Remove(lock.Name()) // last, while it is held
		}
		lock.Close()
		return nil, err
	}
	w.madeDir = madeDir
	return w, nil
}

// refuseForeign refuses a file that never was a mirror. Create calls it before it makes any file beside that one, because
// those names may belong to another program too. openExisting checks the rest, under the lock.
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

	if err := (fileStore{File: f}).foreign(); err != nil {
		return refused(o.Path, err)
	}
	if st.Size < headerSize {
		return refused(o.Path, tooShort(st.Size))
	}
	return nil
}

func refused(path string, err error) error {
	return fmt.Errorf("%s: taking over mirror: %w: the file was left as it is: name another path, or move it away", path, err)
}

// createBeside makes the page of waiters, then the mirror. If o names a group and the page cannot be made for it, createBeside
// fails and leaves the mirror as it is.
func createBeside(o Options, history uint32, lock *os.File) (*Writer, error) {
	k, err := makeWaker(o)
	switch {
	case err != nil && o.WaitGroup > 0:
		return nil, err
	case err != nil:
		o.Logger.Warn("waiters look once per cycle: there is no page of waiters", "path", o.Path, "err", err)
	}

	w, err := createLocked(o, history, lock)
	if err != nil {
		return nil, err
	}
	w.waker = k
	k.serve(w.Generation())
	return w, nil
}

// createLocked takes over the mirror at o.Path, or makes one. The caller holds the lock.
func createLocked(o Options, history uint32, lock *os.File) (*Writer, error) {
	sweep(o.Path, o.Logger)
	for _, socket := range []string{LivePath(o.Path), words.Path(o.Path)} {
		removeSocket(socket)
	}

	v, err := openExisting(o)
	defer runtime.KeepAlive(v)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return createFile(o, history, lock)
	case err != nil && o.Replace && !errors.Is(err, ErrPermission):
		o.Logger.Warn("replacing a file that is not a valid mirror", "path", o.Path, "reason", err)
		w, err := createFile(o, history, lock)
		if err == nil && v != nil { // it was a mirror, if a damaged one: tell its readers
			_ = Guard(func() error { return v.giveUp(w.File()) })
			_ = v.close()
		}
		return w, err
	case err != nil:
		return nil, err
	}

	if v.fixed.history != history {
		o.Logger.Info("the mirror keeps the history that it was made with", "path", o.Path, "records", v.fixed.history, "asked", history)
	}
	w, err := newWriter(o, v, lock)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: taking over mirror: %w", o.Path, err), v.close())
	}
	return w, nil
}

// removeSocket removes a socket that an earlier writer left. It leaves files of other types, and of other users, alone.
func removeSocket(path string) {
	var st unix.Stat_t
	if unix.Lstat(path, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFSOCK && st.Uid == uint32(os.Geteuid()) {
		_ = unix.Unlink(path)
	}
}

// openExisting maps the mirror at o.Path for writing, and checks all of it: a writer must take over nothing that this program
// does not understand. If the check fails but the header is valid, it returns both the view and the error.
func openExisting(o Options) (v *view, err error) {
	f, st, err := openRegular(o.Path, unix.O_RDWR)
	if err != nil {
		return nil, err
	}

	if uid := uint32(os.Geteuid()); st.Uid != uid {
		f.Close()
		return nil, fmt.Errorf("%s: taking over mirror: belongs to user %d, not to user %d: remove it or run as its owner: %w",
			o.Path, st.Uid, uid, ErrPermission)
	}
	err = Guard(func() (err error) {
		v, err = attach(fileStore{f, true, o.Reserve})
		return err
	})
	if err != nil {
		f.Close()
		return nil, refused(o.Path, err)
	}

	err = Guard(func() error {
		if err := v.stale(); err != nil {
			return err
		}
		if ps := v.check(); len(ps) > 0 {
			return fmt.Errorf("%d broken invariants, the first: %v: %w", len(ps), ps[0], ErrFormat)
		}
		_, err := v.segments()
		return err
	})
	if err != nil {
		return v, refused(o.Path, err)
	}

	if err := f.Chmod(o.Mode); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: setting mode: %w", o.Path, err), v.close())
	}
	// If the last writer was killed while the mirror grew, the file is longer than its header says.
	end := int64(segmentOffset(v.fixed.history, uint32(v.declared())))
	if st.Size > end {
		if err := f.Truncate(end); err != nil {
			return nil, errors.Join(fmt.Errorf("%s: setting length: %w", o.Path, err), v.close())
		}
	}
	return v, nil
}

// createFile makes a complete mirror under another name, then renames it to o.Path: no reader ever sees half a mirror.
func createFile(o Options, history uint32, lock *os.File) (w *Writer, err error) {
	var kinds []uint32
	if o.Counters != -1 {
		kinds = []uint32{kindBlocks}
	}
	file, err := randomWord()
	if err != nil {
		return nil, err
	}
	d, err := newDraft(o.Path, segmentOffset(history, uint32(len(kinds))), o.Mode, o.Reserve, o.step)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			d.drop()
		}
	}()

	v, err := formatFile(d.store(), history, kinds, file)
	if err != nil {
		return nil, fmt.Errorf("%s: formatting mirror: %w", o.Path, err)
	}
	o.step("create-formatted")
	if w, err = newWriter(o, v, lock); err != nil {
		return nil, err
	}
	v.ready()
	o.step("create-ready")
	if err := d.name(); err != nil {
		return nil, err
	}
	o.step("create-renamed")
	return w, nil
}

// formatFile makes s, which must be zero, a mirror with segments of those kinds. The caller must call view.ready when readers
// may open it.
func formatFile(s fileStore, history uint32, kinds []uint32, file uint64) (*view, error) {
	head, err := s.window(0, headerSize)
	if err != nil {
		return nil, err
	}
	fixed, err := format(head.b, history, file, time.Now().UnixNano())
	if err != nil {
		return nil, err
	}
	v, err := newView(s, head, fixed)
	if err != nil {
		return nil, err
	}

	for n, kind := range kinds {
		v.hdr.table[n].kind = kind
	}
	v.hdr.segments = uint32(len(kinds))
	return v, nil
}
