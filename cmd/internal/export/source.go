package export

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/flowtally/flowtally/cmd/internal/view"
	"github.com/flowtally/flowtally/shm"
)

// source follows a mirror. It is opened at the first read that finds it.
type source struct {
	path     string
	instance string
	options  shm.ReaderOptions

	in       *shm.Instance
	snapshot shm.Snapshot
	closed   bool
}

// reads is how often a look is made again when the writer, or another file, interferes.
const reads = 3

// read reads all counters of the catalogue c. It renews c first if the mirror's has changed.
func (s *source) read(c *catalogue) (look, error) {
	if err := s.open(); err != nil {
		return look{}, err
	}
	var l look
	var err error
	for range reads {
		r := s.in.Reader()
		if l, err = s.readFrom(r, c); err == nil {
			return l, nil
		}
		if r == s.in.Reader() && !errors.Is(err, shm.ErrBusy) {
			break
		}
	}
	return look{path: l.path}, err
}

// open opens the mirror, if it is not open.
func (s *source) open() (err error) {
	switch {
	case s.closed:
		return shm.ErrClosed
	case s.in != nil:
		return nil
	case s.path != "":
		s.in, err = shm.OpenPath(s.path, s.options)
	default:
		s.in, err = shm.Open(s.instance, s.options)
	}
	if err != nil {
		s.in = nil
		return fmt.Errorf("opening the mirror: %w", err)
	}
	return nil
}

// readFrom reads one file.
func (s *source) readFrom(r *shm.Reader, c *catalogue) (look, error) {
	status := r.Status()
	l := look{path: r.Path(), status: status, writer: view.NewWriter(status)}
	if !status.Alive {
		// A living writer makes a removed mirror again. A dead one's values are shown as long as their file has its name.
		if _, err := os.Lstat(r.Path()); errors.Is(err, fs.ErrNotExist) {
			return l, fmt.Errorf("%s: the mirror was removed, and its writer is gone: %w", r.Path(), fs.ErrNotExist)
		}
	}
	if err := c.renew(r, status); err != nil {
		return l, err
	}
	if err := r.Snapshot(&s.snapshot); err != nil {
		return l, err
	}

	l.now = shm.Now()
	for i := range c.rows {
		if err := s.fill(r, &c.rows[i]); err != nil {
			return l, err
		}
	}
	l.rows = c.rows
	return l, nil
}

// fill reads the value of one counter: the one that a device writes, if it does, else the published one. A counter that
// was removed meanwhile has none.
func (s *source) fill(r *shm.Reader, c *row) error {
	c.value = shm.Value{}
	c.device = false
	c.unread = false
	c.gone = false
	if c.entry.Kind == shm.KindCompletion {
		v, err := view.DeviceValue(r, c.entry.Handle)
		if err == nil {
			c.value = v
			c.device = true
			return nil
		}
		c.unread = !view.NotByDevice(err)
	}

	v, err := s.snapshot.Value(c.entry.Handle)
	if errors.Is(err, shm.ErrBusy) {
		v, err = view.Published(r, c.entry.Handle)
	}
	switch {
	case errors.Is(err, shm.ErrGone):
		c.gone = true
		return nil
	case err != nil:
		return fmt.Errorf("%s: reading %q: %w", r.Path(), c.entry.Name, err)
	}
	c.value = v
	return nil
}

func (s *source) close() error {
	s.closed = true
	if s.in == nil {
		return nil
	}
	return s.in.Close()
}
