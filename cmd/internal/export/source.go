package export

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/flowtally/flowtally/cmd/internal/view"
	"github.com/flowtally/flowtally/shm"
)

// source reads a mirror, and follows it from file to file. Each read tries to open it until it exists.
type source struct {
	path     string
	instance string
	options  shm.ReaderOptions

	in       *shm.Instance
	snapshot shm.Snapshot
	closed   bool
}

// attempts is how often read tries. The writer may change a block under it again and again, and a new file may take
// the mirror's name.
const attempts = 3

// read renews the catalogue c, and reads all of its counters.
func (s *source) read(c *catalogue) (look, error) {
	if err := s.open(); err != nil {
		return look{}, err
	}
	var l look
	var err error
	for range attempts {
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

// open opens the mirror unless it is open.
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

// readFrom reads all counters of the catalogue from one file.
func (s *source) readFrom(r *shm.Reader, c *catalogue) (look, error) {
	status := r.Status()
	l := look{path: r.Path(), status: status, writer: view.NewWriter(status)}
	if !status.Alive {
		// A dead writer's last values are worth showing, unless somebody has removed the file. A living writer would make
		// a new file, and we would read that one.
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

// fill reads the value of one counter: from the memory to which a device writes it, if there is any, else the published
// value. For a counter removed meanwhile it sets gone.
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
