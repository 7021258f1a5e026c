//go:build unix

package shm

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Instance reads the mirror of an instance and follows it. When the file is made anew, as after it was removed, Reader
// returns a reader of the new file, and a NamedCounter goes on there. Its methods may be called from any goroutine.
type Instance struct {
	locate  func() (string, error)
	options ReaderOptions
	now     atomic.Pointer[Reader]
	close   sync.Once
	closing chan struct{} // closed by Close
	watched chan struct{} // closed at the end of watch

	mu     sync.Mutex // held while the name is opened again, and by Close
	looked int64      // when that was done last
}

const (
	// A file that its writer could not mark (ErrStale), because it was removed while no writer was alive, is noticed
	// by looking at its name: once in half a heartbeat period, within these bounds.
	shortestWatch = 50 * time.Millisecond
	longestWatch  = time.Second
	// reopenPause is how long a name that could not be opened is left alone, in ns.
	reopenPause = int64(10 * time.Millisecond)
	// remakeWait is how long a Wait looks for another file in the place of one that is of no use, in ns. A writer
	// that is alive makes it within a second.
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
	in := &Instance{locate: locate, options: o, closing: make(chan struct{}), watched: make(chan struct{})}
	r, err := in.open()
	if err != nil {
		return nil, err
	}
	in.now.Store(r)
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

// Reader returns the reader of the file that has the name now. Handles that it returns are of that file.
func (in *Instance) Reader() *Reader { return in.now.Load() }

// Close ends following, lookups and waits. Counters go on reading the file that they read last. Idempotent.
func (in *Instance) Close() error {
	in.close.Do(func() { close(in.closing) })
	<-in.watched
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.now.Load().Close()
}

// watch notices that the name is another file's.
func (in *Instance) watch() {
	defer close(in.watched)
	for {
		r := in.now.Load()
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

// reopen opens the file that has the name now, for Reader to return. ErrStale: it is still the file of
// was, or cannot be opened.
func (in *Instance) reopen(was *Reader) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	now := Now()
	switch {
	case in.now.Load() != was:
		return nil
	case was.closed.Load():
		return ErrClosed
	case now-in.looked < reopenPause:
		return fmt.Errorf("%s: %w", was.path, ErrStale)
	}
	in.looked = now
	r, err := in.open()
	if err != nil {
		return fmt.Errorf("%w: %w", ErrStale, err)
	}
	if r.id == was.id || r.Status().Replaced {
		r.Close()
		return fmt.Errorf("%s: %w", was.path, ErrStale)
	}
	in.now.Store(r)
	was.superseded.Store(true)
	return nil // was stays open: a Snapshot or a Wait may be using it
}

// Counter prepares reading the counter of a name. ErrNotFound: no live counter has it.
func (in *Instance) Counter(name string) (*NamedCounter, error) {
	n := &NamedCounter{in: in, name: name}
	if err := n.find(in.now.Load()); err != nil && !useless(err) {
		return nil, err
	}
	return n, nil
}
