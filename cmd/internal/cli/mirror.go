package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/flowtally/flowtally/cmd/internal/view"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/shm"
)

// mirror reads a mirror.
type mirror struct {
	path   string
	reader *shm.Reader
	in     *shm.Instance // follows the mirror; nil: it is opened once
	since  time.Time     // when reading the file failed; zero: it has not
}

// openMirror opens the mirror that the flags name, once.
func openMirror(f readerFlag) (*mirror, error) {
	o := shm.ReaderOptions{Owners: f.Owner}
	path, err := f.readPath(o)
	if err != nil {
		return nil, err
	}
	reader, err := shm.Open(path, o)
	if err != nil {
		return nil, mirrorError(path, err)
	}
	return &mirror{path: path, reader: reader}, nil
}

// followMirror opens the mirror that the flags name, for a command that goes on in the file that
// takes its name.
func followMirror(f readerFlag) (*mirror, error) {
	o := shm.ReaderOptions{Owners: f.Owner}
	path, err := f.readPath(o)
	if err != nil {
		return nil, err
	}
	var in *shm.Instance
	if f.Mirror != "" {
		in, err = shm.OpenPath(path, o)
	} else {
		in, err = shm.OpenInstance(string(f.Instance), o)
	}
	if err != nil {
		return nil, mirrorError(path, err)
	}
	m := &mirror{in: in}
	m.reopen()
	return m, nil
}

func (m *mirror) close() {
	if m.in != nil {
		m.in.Close()
		return
	}
	m.reader.Close()
}

// replaced reports whether another file has taken the mirror's name.
func (m *mirror) replaced() bool { return m.in.Reader() != m.reader }

// reopen reads the file that has the mirror's name now.
func (m *mirror) reopen() {
	if m.replaced() {
		m.since = time.Time{}
	}
	m.reader = m.in.Reader()
	m.path = m.reader.Path()
}

// lost reports whether an error of reading means that the file cannot be used any more. Another one may take its
// name.
func lost(err error) bool {
	return errors.Is(err, shm.ErrStale) || errors.Is(err, shm.ErrTruncated) || errors.Is(err, shm.ErrFormat)
}

// remakeWait is the time for which a command waits for another file in place of one that cannot be used. A live
// writer makes it within a second.
const remakeWait = 5 * time.Second

// ends reports whether err, of reading, ends a command: not while another file may take the mirror's name.
func (m *mirror) ends(err error) bool {
	if err == nil || !lost(err) {
		return err != nil
	}
	if m.since.IsZero() {
		m.since = time.Now()
	}
	return time.Since(m.since) > remakeWait
}

// mirrorError adds the remedy if the mirror is missing. An empty path means that none was found.
func mirrorError(path string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		if path != "" {
			err = fmt.Errorf("%s: no mirror: %w", path, fs.ErrNotExist)
		}
		return withHint(err, "flowtally run --config FILE writes one; --mirror PATH or --instance NAME reads another")
	}
	if !strings.Contains(err.Error(), path) {
		err = fmt.Errorf("%s: opening mirror: %w", path, err)
	}
	if errors.Is(err, shm.ErrPermission) {
		err = withHint(err, "--owner UID trusts that user's files; flowtally check reads any file")
	}
	return err
}

// read reads the counters with the given names or patterns of the shell; all counters without
// names. Names without a counter are an *unknownError, and the reading holds the others.
func (m *mirror) read(names []string) (*view.Reading, error) {
	wanted, err := newSelection(names)
	if err != nil {
		return nil, err
	}
	entries, err := m.entries(wanted)
	if err != nil {
		return nil, fmt.Errorf("%s: reading the catalogue: %w", m.path, err)
	}
	status := m.reader.Status()
	r := &view.Reading{Path: m.path, Writer: view.NewWriter(status)}
	known := make([]string, 0, len(entries))
	for _, e := range entries {
		known = append(known, e.Name)
		if !wanted.has(e.Name) {
			continue
		}
		c := view.NewCounter(e)
		if err := m.value(&c, e.Handle); err != nil {
			return nil, fmt.Errorf("%s: reading %q: %w", m.path, e.Name, err)
		}
		c.Stale = c.Stale || c.Present() && !r.Writer.Live()
		r.Counters = append(r.Counters, c)
	}
	r.Now, r.Zero = shm.Now(), view.MonotonicZero()
	view.Sort(r.Counters, "name")
	if unknown := wanted.unmet(); len(unknown) > 0 {
		return r, newUnknownError(m.path, unknown, known)
	}
	return r, nil
}

// entries returns the counters that a selection needs: only these if it names each, else all.
func (m *mirror) entries(s selection) ([]shm.Entry, error) {
	if names := slices.Collect(maps.Keys(s.met)); len(names) > 0 && !slices.ContainsFunc(names, isPattern) {
		found, err := m.reader.Find(names...)
		if err != nil || len(found) == len(names) {
			return found, err
		}
	}
	return m.reader.Entries()
}

// value fills in the value: the device's own value, if a device writes one, else the published
// value. A counter that was removed meanwhile has no value.
func (m *mirror) value(c *view.Counter, h shm.Handle) error {
	if c.Completion() {
		v, err := m.deviceValue(h)
		if err == nil {
			c.Show(v, true)
			return nil
		}
		c.Unread = !notByDevice(err)
	}
	v, err := m.published(h)
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

// published returns the last value that the writer published.
func (m *mirror) published(h shm.Handle) (v shm.Value, err error) {
	err = shm.Guard(func() error {
		counter, err := m.reader.Counter(h)
		if err == nil {
			v, err = counter.Load()
		}
		return err
	})
	return v, err
}

// unknownError is names that no counter of the mirror has.
type unknownError struct{ text string }

func (e *unknownError) Error() string { return e.text }
func (e *unknownError) Unwrap() error { return shm.ErrNotFound }

func newUnknownError(path string, unknown, known []string) error {
	var lines []string
	for _, name := range unknown {
		line := fmt.Sprintf("%s: no counter %q", path, name)
		if isPattern(name) {
			line = fmt.Sprintf("%s: no counter matches %q", path, name)
		}
		if near := flow.Nearest(name, known); near != "" {
			line += fmt.Sprintf(", did you mean %q?", near)
		}
		lines = append(lines, line)
	}
	return &unknownError{strings.Join(lines, "\nflowtally: ")}
}

// waitFirstCycle waits until the writer of the mirror has completed a poll cycle.
func waitFirstCycle(ctx context.Context, path string, timeout time.Duration) error {
	m, err := openMirror(readerFlag{instanceFlag: instanceFlag{Mirror: path}})
	if err != nil {
		return err
	}
	defer m.close()
	deadline := time.NewTimer(timeout)
	defer deadline.Stop()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for m.reader.Status().Cycle == 0 {
		select {
		case <-ctx.Done():
			return nil
		case <-deadline.C:
			return fmt.Errorf("%s: no poll cycle within %s", path, timeout)
		case <-tick.C:
		}
	}
	return nil
}
