// Package control holds the lock of control calls, and the decision on a call whose caller may give up.
package control

import (
	"cmp"
	"context"
	"fmt"
	"sync"
)

// Lock serialises control calls, and guards what they change. Unlike a mutex, its waiters can give up.
//
// Who holds it may change what it guards, but does not do so all the time. While the holder calls a kernel or a device, or only
// computes (Outside), and between two steps of a change (Pause), it lets one reader at a time in. A reader sees whole steps.
type Lock struct {
	turn    chan struct{}     // full: somebody holds the lock
	state   chan struct{}     // full: the holder may be changing something, or a reader reads
	commit  func()            // called by Unlock
	observe func(closed bool) // told when the holder keeps readers out, and when it lets them in; may be nil
}

// New returns an unlocked lock. Each Unlock calls commit first. observe may be nil; the goroutine of the holder calls it.
func New(commit func(), observe func(closed bool)) Lock {
	return Lock{turn: make(chan struct{}, 1), state: make(chan struct{}, 1), commit: commit, observe: observe}
}

// close keeps readers out. It waits for the one that reads.
func (l Lock) close() {
	l.state <- struct{}{}
	if l.observe != nil {
		l.observe(true)
	}
}

// open lets readers in. If one waits, it is in when open returns: a receive from a full channel ends a waiting send. A close
// right after it waits for that reader.
func (l Lock) open() {
	if l.observe != nil {
		l.observe(false)
	}
	<-l.state
}

// Lock takes the lock.
func (l Lock) Lock() { l.LockUntil(nil, nil) }

// LockUntil takes the lock, unless one of the channels is closed before. It reports whether it did.
func (l Lock) LockUntil(done, closed <-chan struct{}) bool {
	if l.TryLock() {
		return true
	}
	select {
	case l.turn <- struct{}{}:
		l.close()
		return true
	case <-done:
	case <-closed:
	}
	return false
}

// TryLock takes the lock if nobody holds it, and reports whether it did. It waits for a reader.
func (l Lock) TryLock() bool {
	select {
	case l.turn <- struct{}{}:
		l.close()
		return true
	default:
		return false
	}
}

// Unlock releases the lock.
func (l Lock) Unlock() {
	l.commit()
	l.open()
	<-l.turn
}

// Outside runs a call into a kernel or a device, or one that only computes, and lets readers in meanwhile. The call changes
// nothing that the lock guards.
func (l Lock) Outside(call func() error) error {
	l.open()
	defer l.close()
	return call()
}

// Pause lets a waiting reader in between two steps of a change. What the lock guards is whole then.
func (l Lock) Pause() {
	l.open()
	l.close()
}

// ReadUntil waits until the caller may read what the lock guards, or done is closed. It reports whether the caller may read. If
// so, EndRead follows.
func (l Lock) ReadUntil(done <-chan struct{}) bool {
	select {
	case l.state <- struct{}{}:
		return true
	case <-done:
		return false
	}
}

// TryRead is ReadUntil for a caller that does not wait.
func (l Lock) TryRead() bool {
	select {
	case l.state <- struct{}{}:
		return true
	default:
		return false
	}
}

// EndRead ends the reading that ReadUntil or TryRead began.
func (l Lock) EndRead() { <-l.state }

// Commit is the decision whether the changes of a call stay. It is made once.
type Commit struct {
	doing     string          // describes the call in errors
	life      context.Context // of the instance: the changes of a call that it ends do not stay
	mu        sync.Mutex
	kept      bool
	long      bool // long work may follow Keep
	abandoned bool // the caller has returned
}

// NewCommit returns the decision on a call.
func NewCommit(life context.Context, doing string) *Commit { return &Commit{doing: doing, life: life} }

// GoOn notes that the caller need not wait for the work that follows Keep.
func (c *Commit) GoOn() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.long = true
}

// Keep decides that the changes of the call stay. After an error the caller has given up, or the instance closes, and
// the call undoes its changes. The changes of a call without a Commit stay.
func (c *Commit) Keep(ctx context.Context) error {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := cmp.Or(ctx.Err(), c.life.Err()); err != nil {
		return fmt.Errorf("%s: %w", c.doing, err)
	}
	c.kept = true
	return nil
}

// Abandon notes that the caller returns, because its ctx has ended; false: the call is about to return by itself.
// kept says that the changes of the call stay.
func (c *Commit) Abandon() (abandoned, kept bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.abandoned = !c.kept || c.long
	return c.abandoned, c.kept
}

// IsAbandoned reports whether the caller has returned.
func (c *Commit) IsAbandoned() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.abandoned
}

// Describe names the flows of a call in errors.
func Describe(names []string) string {
	switch len(names) {
	case 0:
		return "no flows"
	case 1:
		return fmt.Sprintf("flow %q", names[0])
	}
	return fmt.Sprintf("%d flows (%q, …)", len(names), names[0])
}
