package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/flowtally/flowtally/cmd/internal/selection"
	"github.com/flowtally/flowtally/cmd/internal/view"
	"github.com/flowtally/flowtally/shm"
)

// mirror is a mirror open for reading. A command reads it once, or follows it from file to file: each new writer may make
// a new file of the same name.
type mirror struct {
	path        string
	reader      *shm.Reader
	in          *shm.Instance // follows the mirror; nil if the command reads it once
	failedSince time.Time     // of the first failed read of this file; zero if none failed
}

// openMirror opens the mirror chosen by the flags, to read it once.
func openMirror(f readerFlag) (*mirror, error) {
	o := shm.ReaderOptions{Owners: f.Owner}
	path, err := f.readPath(o)
	if err != nil {
		return nil, err
	}
	reader, err := shm.OpenReader(path, o)
	if err != nil {
		return nil, mirrorError(path, err)
	}
	return &mirror{path: path, reader: reader}, nil
}

// followMirror opens the mirror chosen by the flags, and follows it into the next file of that name.
func followMirror(f readerFlag) (*mirror, error) {
	in, err := openFollowed(f)
	if err != nil {
		return nil, err
	}
	m := &mirror{in: in}
	m.reopen()
	return m, nil
}

// openFollowed opens the mirror chosen by the flags, to follow it.
func openFollowed(f readerFlag) (*shm.Instance, error) {
	o := shm.ReaderOptions{Owners: f.Owner}
	path, err := f.readPath(o)
	if err != nil {
		return nil, err
	}

	var in *shm.Instance
	if f.Mirror != "" {
		in, err = shm.OpenPath(path, o)
	} else {
		in, err = shm.Open(string(f.Instance), o)
	}
	if err != nil {
		return nil, mirrorError(path, err)
	}
	return in, nil
}

func (m *mirror) close() {
	if m.in != nil {
		m.in.Close()
		return
	}
	m.reader.Close()
}

// replaced reports whether another file has taken the mirror's name. Callers must have opened it by followMirror.
func (m *mirror) replaced() bool { return m.in.Reader() != m.reader }

// reopen switches to the file that has the mirror's name now.
func (m *mirror) reopen() {
	if m.replaced() {
		m.failedSince = time.Time{}
	}
	m.reader = m.in.Reader()
	m.path = m.reader.Path()
}

// lost reports whether a failed read means that this file is useless from now on. A new file may soon take its name.
func lost(err error) bool {
	return errors.Is(err, shm.ErrStale) || errors.Is(err, shm.ErrTruncated) || errors.Is(err, shm.ErrFormat)
}

// remakeWait is how long a command waits for a new file after losing one. A living writer makes a new file within a
// second.
const remakeWait = 5 * time.Second

// ends reports whether a failed read ends the command. A lost file ends it only after remakeWait.
func (m *mirror) ends(err error) bool {
	if err == nil || !lost(err) {
		return err != nil
	}
	if m.failedSince.IsZero() {
		m.failedSince = time.Now()
	}
	return time.Since(m.failedSince) > remakeWait
}

// mirrorError names the mirror in an error of opening it, and adds a next step if the mirror is missing or belongs to
// another user. path is empty if no place on this host has the mirror.
func mirrorError(path string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		if path != "" {
			err = fmt.Errorf("%s: no mirror: %w", path, fs.ErrNotExist)
		}
		return withHint(err, "flowtally run --config FILE # writes one; --mirror PATH or --instance NAME reads another")
	}

	if !strings.Contains(err.Error(), path) {
		err = fmt.Errorf("%s: opening mirror: %w", path, err)
	}
	if errors.Is(err, shm.ErrPermission) {
		err = withHint(err, "AGAIN --owner UID # trusts the files of the user that the text names; flowtally check reads any file")
	}
	return err
}

// read reads the selected counters, or their sums. If the mirror lacks some of them, it returns both the others and a
// *selection.UnmetError.
func (m *mirror) read(s *selection.Selection) (*view.Reading, error) {
	entries, err := m.entries(s)
	if err != nil {
		return nil, fmt.Errorf("%s: reading the catalogue: %w", m.path, err)
	}
	var chosen []shm.Entry
	for _, e := range entries {
		if s.Has(e) {
			chosen = append(chosen, e)
		}
	}

	r := &view.Reading{Path: m.path, Writer: view.NewWriter(m.reader.Status())}
	if s.Sums() {
		err = m.sums(r, s, chosen)
	} else {
		err = m.values(r, chosen)
	}
	if err != nil {
		return nil, err
	}

	r.Now, r.Zero = shm.Now(), view.MonotonicZero()
	return r, s.Unmet(m.path, entries, len(chosen))
}

// entries returns the entries from which to select. If the selection names counters without patterns, these are enough,
// and finding them is cheaper than decoding the whole catalogue.
func (m *mirror) entries(s *selection.Selection) ([]shm.Entry, error) {
	if names := s.Names(); len(names) > 0 {
		found, err := m.reader.Find(names...)
		if err != nil || len(found) == len(names) {
			return found, err
		}
	}
	return m.reader.Entries() // also for an unknown name, so that the error can suggest a similar one
}

// values reads a counter for each entry.
func (m *mirror) values(r *view.Reading, entries []shm.Entry) error {
	for _, e := range entries {
		c := view.NewCounter(e)
		if err := m.value(&c, e.Handle); err != nil {
			return fmt.Errorf("%s: reading %q: %w", m.path, e.Name, err)
		}
		c.Stale = c.Stale || c.Present() && !r.Writer.Live()
		r.Counters = append(r.Counters, c)
	}
	view.Sort(r.Counters, "name")
	return nil
}

// value reads one counter: from the memory to which a device writes its value, if there is any, else the published value.
// For a counter removed meanwhile it sets Gone.
func (m *mirror) value(c *view.Counter, h shm.Handle) error {
	if c.Completion() {
		v, err := view.DeviceValue(m.reader, h)
		if err == nil {
			c.Show(v, true)
			return nil
		}
		c.Unread = !view.NotByDevice(err)
	}

	v, err := view.Published(m.reader, h)
	switch {
	case errors.Is(err, shm.ErrGone):
		c.Gone = true
		return nil
	case err != nil:
		return err
	}
	c.Show(v, false)
	return nil
}

// sums reads the entries and adds them up. All values of a sum must be of one snapshot, so it uses published values even
// where a device writes newer ones. A counter removed after its entry was read has no value, and adds nothing.
func (m *mirror) sums(r *view.Reading, s *selection.Selection, entries []shm.Entry) error {
	handles := make([]shm.Handle, len(entries))
	for i, e := range entries {
		handles[i] = e.Handle
	}
	var snapshot shm.Snapshot
	if err := m.reader.SnapshotOf(&snapshot, handles); err != nil {
		return err
	}

	r.Snapshot = &snapshot.Label
	for _, sum := range s.SumUp(entries, snapshot.List) {
		c := view.NewSum(sum)
		c.Stale = c.Stale || c.Present() && !r.Writer.Live()
		r.Counters = append(r.Counters, c)
	}
	return nil
}
