//go:build unix

package shm

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Instance reads the mirror of an instance, and follows it. When the writer makes the file anew, for example because somebody
// removed it, Reader returns a reader of the new file, and each Counter continues there. Any goroutine may call the methods.
type Instance struct {
	locate  func() (string, error)
	options ReaderOptions
	current atomic.Pointer[Reader] // of the newest file
	close   sync.Once
	closing chan struct{} // closed by Close
	watched chan struct{} // closed when watch returns

	mu       sync.Mutex // held while the name is opened again, and by Close
	openedAt int64      // when the name was last opened again
}

const (
	// A writer marks the file that it replaces (ErrStale). But a file that somebody removed while no writer was alive stays
	// unmarked, so watch checks twice in a heartbeat period, within these bounds, which file has the name.
	shortestWatch = 50 * time.Millisecond
	longestWatch  = time.Second
	// reopenPause is the shortest time between two tries to open the name again, in ns.
	reopenPause = int64(10 * time.Millisecond)
	// remakeWait is how long a Wait on a useless file waits for another file of the name, in ns. A living writer makes one
	// within a second.
	remakeWait = int64(3 * time.Second)
)

// Open opens the mirror of an instance; empty means "default". It looks where Locate does. The error satisfies
// fs.ErrNotExist if no writer has made the mirror yet.
func Open(name string, options ...ReaderOptions) (*Instance, error) {
	o := optional(options)
	return follow(func() (string, error) { return Locate(name, o) }, o)
}

// OpenPath opens the mirror at path, and every later file of that name.
func OpenPath(path string, options ...ReaderOptions) (*Instance, error) {
	return follow(func() (string, error) { return path, nil }, optional(options))
}

func follow(locate func() (string, error), o ReaderOptions) (*Instance, error) {
	in := &Instance{
		locate:  locate,
		options: o,
		closing: make(chan struct{}),
		watched: make(chan struct{}),
	}
	r, err := in.open()
	if err != nil {
		return nil, err
	}
	in.current.Store(r)
	go in.watch()
	return in, nil
}

// open opens the file that has the name now.
func (in *Instance) open() (*Reader, error) {
	path, err := in.locate()
	if err != nil {
		return nil, err
	}
	return OpenReader(path, in.options)
}

// Reader returns the reader of the current file. Its handles mean nothing in the next file: a Counter looks names up again.
func (in *Instance) Reader() *Reader { return in.current.Load() }

// Close ends following, lookups and waits. Counters can still read the last file. Idempotent.
func (in *Instance) Close() error {
	in.close.Do(func() { close(in.closing) })
	<-in.watched
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.current.Load().Close()
}

// watch opens the name again whenever another file may have it, until Close.
func (in *Instance) watch() {
	defer close(in.watched)
	for {
		r := in.current.Load()
		s := r.Status()
		var st unix.Stat_t
		if !s.Alive || unix.Lstat(r.path, &st) != nil || idOf(&st) != r.id {
			_ = in.reopen(r) // after an error, the next round or the next read tries again
		}

		select {
		case <-in.closing:
			return
		case <-time.After(min(max(s.HeartbeatPeriod/2, shortestWatch), longestWatch)):
		}
	}
}

// reopen replaces was, the current reader, by one of the file that has the name now. ErrStale: no other file has the name, or
// it cannot be opened yet. Calls within reopenPause of the last one do nothing but return ErrStale.
func (in *Instance) reopen(was *Reader) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	now := Now()
	switch {
	case in.current.Load() != was:
		return nil // another goroutine was faster
	case was.closed.Load():
		return ErrClosed
	case now-in.openedAt < reopenPause:
		return fmt.Errorf("%s: %w", was.path, ErrStale)
	}
	in.openedAt = now

	r, err := in.open()
	if err != nil {
		return fmt.Errorf("%w: %w", ErrStale, err)
	}
	if r.id == was.id || r.Status().Replaced {
		r.Close()
		return fmt.Errorf("%s: %w", was.path, ErrStale)
	}

	in.current.Store(r)
	was.superseded.Store(true)
	return nil // was stays open, because a Snapshot or a Wait may be using it
}

// Counter returns the counter of a name. ErrNotFound: no live counter has the name.
func (in *Instance) Counter(name string) (*Counter, error) {
	c := &Counter{in: in, name: name}
	if err := c.find(in.current.Load()); err != nil && !useless(err) {
		return nil, err
	}
	return c, nil
}
