//go:build unix

package shm

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Instance reads the mirror of an instance and follows it. When the file is made anew,
// as after it was removed, Reader returns a reader of the new one, and a NamedCounter
// goes on there. Its methods may be called from any goroutine.
type Instance struct {
	locate  func() (string, error)
	options ReaderOptions
	now     atomic.Pointer[Reader]

	mu     sync.Mutex // held while the name is opened again
	looked int64      // when that was done last
	closed bool
	stop   chan struct{}
	done   chan struct{}
}

// A file that its writer could not mark (ErrStale), because it was removed while no writer
// lived, is noticed by comparing what the name names now. That is done once in half a
// heartbeat period, within these bounds.
const (
	shortestWatch = 50 * time.Millisecond
	longestWatch  = time.Second
	// reopenPause is how long a name that could not be opened is left alone.
	reopenPause = 10 * time.Millisecond
	// remakeWait is how long a Wait looks for another file in the place of one that is of no use.
	// A writer that lives makes it within a second.
	remakeWait = 3 * time.Second
)

// OpenInstance opens the mirror of an instance; empty means "default". See Locate for where it
// is looked for. An error satisfies fs.ErrNotExist if no writer has made it yet.
func OpenInstance(name string, options ...ReaderOptions) (*Instance, error) {
	var o ReaderOptions
	if len(options) > 0 {
		o = options[0]
	}
	return follow(func() (string, error) { return Locate(name, o) }, o)
}

// OpenPath opens the mirror at path, and follows what has that name.
func OpenPath(path string, o ReaderOptions) (*Instance, error) {
	return follow(func() (string, error) { return path, nil }, o)
}

func follow(locate func() (string, error), o ReaderOptions) (*Instance, error) {
	path, err := locate()
	if err != nil {
		return nil, err
	}
	r, err := Open(path, o)
	if err != nil {
		return nil, err
	}
	in := &Instance{locate: locate, options: o, stop: make(chan struct{}), done: make(chan struct{})}
	in.now.Store(r)
	go in.watch()
	return in, nil
}

// Reader returns the reader of the file that has the name now. Handles that it returns
// are of that file.
func (in *Instance) Reader() *Reader { return in.now.Load() }

// Close ends following, lookups and waits. Counters go on reading the file that they read last.
// Idempotent.
func (in *Instance) Close() error {
	in.mu.Lock()
	if in.closed {
		in.mu.Unlock()
		return nil
	}
	in.closed = true
	close(in.stop)
	in.mu.Unlock()
	<-in.done
	return in.now.Load().Close()
}

// watch notices that the name names another file.
func (in *Instance) watch() {
	defer close(in.done)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-in.stop:
			return
		case <-timer.C:
		}
		r := in.now.Load()
		if s := r.Status(); !in.names(r) || !s.Alive || r.replaced() {
			_, _ = in.reopen(r) // the next read, or the next look, meets an error again
		}
		period := r.Status().HeartbeatPeriod / 2
		timer.Reset(min(max(period, shortestWatch), longestWatch))
	}
}

// names tells whether the path of r still names the file of r.
func (in *Instance) names(r *Reader) bool {
	var st unix.Stat_t
	return unix.Lstat(r.path, &st) == nil && idOf(&st) == r.id
}

// replaced tells whether the file was given up.
func (r *Reader) replaced() (is bool) {
	_ = Guard(func() error { is = r.v.stale() != nil; return nil })
	return is
}

// reopen returns a reader of another file than was, if one has the name. ErrStale: none has.
func (in *Instance) reopen(was *Reader) (*Reader, error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if r := in.now.Load(); r != was {
		return r, nil
	}
	if in.closed {
		return nil, ErrClosed
	}
	now := Now()
	if now-in.looked < int64(reopenPause) {
		return nil, fmt.Errorf("%s: %w", was.path, ErrStale)
	}
	in.looked = now
	path, err := in.locate()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrStale, err)
	}
	r, err := Open(path, in.options)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrStale, err)
	}
	if r.id == was.id || r.replaced() {
		r.Close()
		return nil, fmt.Errorf("%s: %w", was.path, ErrStale)
	}
	in.now.Store(r)
	was.left.Store(true)
	return r, nil // was stays open: a Snapshot or a Wait may be using it
}

// Counter prepares reading the counter of a name. ErrNotFound: no live counter has it.
func (in *Instance) Counter(name string) (*NamedCounter, error) {
	n := &NamedCounter{in: in, name: name}
	if err := n.find(in.now.Load()); err != nil && !useless(err) {
		return nil, err
	}
	return n, nil
}
