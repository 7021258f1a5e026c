//go:build unix

package shm

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Instance reads the mirror of an instance, and follows it. When the file is made anew, as after somebody removed it,
// Reader returns a reader of the new file, and a Counter goes on there. The methods may be called from any goroutine.
type Instance struct {
	locate  func() (string, error)
	options ReaderOptions
	current atomic.Pointer[Reader] // of the file that has the name
	close   sync.Once
	closing chan struct{} // closed by Close
	watched chan struct{} // closed at the end of watch

	mu       sync.Mutex // held while the name is opened again, and by Close
	openedAt int64      // when the name was last opened again
}

const (
	// A writer marks the file that it replaces (ErrStale). It cannot mark a file that was removed while no writer was
	// alive. So watch looks at the name, once in half a heartbeat period, within these bounds.
	shortestWatch = 50 * time.Millisecond
	longestWatch  = time.Second
	// reopenPause is the shortest time between two attempts to open a name again, in ns.
	reopenPause = int64(10 * time.Millisecond)
	// remakeWait is how long a Wait looks for another file in the place of a useless one, in ns. A writer that is alive
	// makes one within a second.
	remakeWait = int64(3 * time.Second)
)

// Open opens the mirror of an instance; empty means "default". Locate says where it is looked for. An error
// satisfies fs.ErrNotExist if no writer has made the mirror yet.
func Open(name string, options ...ReaderOptions) (*Instance, error) {
	o := optional(options)
	return follow(func() (string, error) { return Locate(name, o) }, o)
}

// OpenPath opens the mirror at path, and follows the files that have this name.
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

// open opens the file that has the name.
func (in *Instance) open() (*Reader, error) {
	path, err := in.locate()
	if err != nil {
		return nil, err
	}
	return OpenReader(path, in.options)
}

// Reader returns the reader of the file that has the name now. The handles of that reader are of this file alone.
func (in *Instance) Reader() *Reader { return in.current.Load() }

// Close ends following, lookups and waits. Counters go on reading the file that they read last. Idempotent.
func (in *Instance) Close() error {
	in.close.Do(func() { close(in.closing) })
	<-in.watched
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.current.Load().Close()
}

// watch looks whether the name is another file's by now, until Close.
func (in *Instance) watch() {
	defer close(in.watched)
	for {
		r := in.current.Load()
		s := r.Status()
		var st unix.Stat_t
		if !s.Alive || unix.Lstat(r.path, &st) != nil || idOf(&st) != r.id {
			_ = in.reopen(r) // the next read, or the next look, meets an error again
		}

		select {
		case <-in.closing:
			return
		case <-time.After(min(max(s.HeartbeatPeriod/2, shortestWatch), longestWatch)):
		}
	}
}

// reopen opens the file that has the name now, for Reader to return. ErrStale: it is still the file of was, or cannot be
// opened.
func (in *Instance) reopen(was *Reader) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	now := Now()
	switch {
	case in.current.Load() != was:
		return nil // another goroutine has done it
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
	return nil // was stays open: a Snapshot or a Wait may be using it
}

// Counter prepares reading the counter of a name. ErrNotFound: no live counter has the name.
func (in *Instance) Counter(name string) (*Counter, error) {
	n := &Counter{in: in, name: name}
	if err := n.find(in.current.Load()); err != nil && !useless(err) {
		return nil, err
	}
	return n, nil
}
