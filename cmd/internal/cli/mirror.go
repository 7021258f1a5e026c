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

// mirror is a mirror that a command reads, once or following.
type mirror struct {
	path        string
	reader      *shm.Reader
	in          *shm.Instance // follows the mirror; nil: it is read once
	failedSince time.Time     // when reading this file began to fail; zero: it has not
}

// openMirror opens the mirror that the flags name, to be read once.
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

// followMirror opens the mirror that the flags name, for a command that goes on in the next file of that name.
func followMirror(f readerFlag) (*mirror, error) {
	in, err := openFollowed(f)
	if err != nil {
		return nil, err
	}
	m := &mirror{in: in}
	m.reopen()
	return m, nil
}

// openFollowed opens the mirror that the flags name, to be followed.
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

// replaced reports whether the mirror's name is of another file now.
func (m *mirror) replaced() bool { return m.in.Reader() != m.reader }

// reopen reads the file that has the mirror's name now.
func (m *mirror) reopen() {
	if m.replaced() {
		m.failedSince = time.Time{}
	}
	m.reader = m.in.Reader()
	m.path = m.reader.Path()
}

// lost reports whether an error of reading means that this file can no longer be read. Another file may take its name.
func lost(err error) bool {
	return errors.Is(err, shm.ErrStale) || errors.Is(err, shm.ErrTruncated) || errors.Is(err, shm.ErrFormat)
}

// remakeWait is how long a command waits for another file in place of a lost one. A living writer makes one within a
// second.
const remakeWait = 5 * time.Second

// ends reports whether an error of reading ends the command. A lost file does not before remakeWait.
func (m *mirror) ends(err error) bool {
	if err == nil || !lost(err) {
		return err != nil
	}
	if m.failedSince.IsZero() {
		m.failedSince = time.Now()
	}
	return time.Since(m.failedSince) > remakeWait
}

// mirrorError adds the next step if the mirror is missing, or is another user's. An empty path: none was found.
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

// read reads the selected counters, or their sums. If the mirror lacks some of them, it returns the others, and a
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

// entries returns the entries that a selection is made from: of the counters that it names, else all.
func (m *mirror) entries(s *selection.Selection) ([]shm.Entry, error) {
	if names := s.Names(); len(names) > 0 {
		found, err := m.reader.Find(names...)
		if err != nil || len(found) == len(names) {
			return found, err
		}
	}
	return m.reader.Entries() // where a name is unknown, the error proposes another one
}

// values fills in the counters of entries.
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

// value fills in the value: the one that a device writes, if it does, else the published one. A counter that was
// removed meanwhile has none.
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

// sums fills in the sums of entries. The values of a sum are of one snapshot, so they are published values: a device's
// words would change meanwhile. A counter that was removed since its entry was read counts as one without a value.
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
