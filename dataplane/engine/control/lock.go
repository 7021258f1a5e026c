// Package control has what the control calls of an instance share: the [Lock] under which one of them changes the instance
// at a time, and the [Commit] that decides whether the change of a call stays when its caller may give up.
package control

// Lock serialises control calls, and guards what they change. Unlike a mutex, its waiters can give up.
//
// The holder may change what the lock guards, but does not do so all the time. While it calls a kernel or a device, or only
// computes ([Lock.Outside]), and between two steps of a change ([Lock.Pause]), it lets one reader at a time in. So a reader
// waits for one step and not for a whole call, and it sees whole steps.
//
// Two channels of one place each make the lock. Its holder fills turn first and then state, to keep readers out. A reader
// fills only state.
type Lock struct {
	turn    chan struct{}     // full: somebody holds the lock
	state   chan struct{}     // full: the holder may be changing something, or a reader reads
	commit  func()            // called by Unlock
	observe func(closed bool) // told when the holder keeps readers out, and when it lets them in; may be nil
}

// New returns an unlocked lock. Each Unlock calls commit first. observe may be nil; the goroutine of the holder calls it.
func New(commit func(), observe func(closed bool)) Lock {
	return Lock{
		turn:    make(chan struct{}, 1),
		state:   make(chan struct{}, 1),
		commit:  commit,
		observe: observe,
	}
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
