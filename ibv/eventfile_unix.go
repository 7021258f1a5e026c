package ibv

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// eventFile waits on a descriptor of the library with the runtime's poller: a context's async_fd,
// or that of asynchronous queries. It has a duplicate of its own, so that no number is used after
// the library has closed it.
type eventFile struct {
	device string
	file   *os.File
	raw    syscall.RawConn
	turn   sync.Mutex // held by the waiter, because all share the file's one deadline
	closed atomic.Bool
}

// newEventFile duplicates fd. On error the library's descriptor is as it was, or non-blocking.
func newEventFile(fd int, device string) (*eventFile, error) {
	own, err := syscall.Dup(fd)
	if err != nil {
		return nil, fmt.Errorf("%s: duplicating its event descriptor: %w", device, err)
	}
	syscall.CloseOnExec(own)

	// O_NONBLOCK belongs to the open file, which both descriptors share: the library gets EAGAIN where
	// it would have blocked.
	if err := syscall.SetNonblock(own, true); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: making its event descriptor non-blocking: %w", device, err), syscall.Close(own))
	}

	f := os.NewFile(uintptr(own), device+" events")
	raw, err := f.SyscallConn()
	if err == nil {
		err = f.SetReadDeadline(time.Time{}) // refused for descriptors that cannot be polled
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: polling its event descriptor: %w", device, err), f.Close())
	}
	return &eventFile{device: device, file: f, raw: raw}, nil
}

// wait calls get, and calls it again whenever the descriptor is readable, until get is done or
// returns an error, or ctx ends.
func (f *eventFile) wait(ctx context.Context, get func() (done bool, err error)) error {
	f.turn.Lock()
	defer f.turn.Unlock()

	// The deadline may have been set by the end of this ctx, or late by the end of an earlier
	// waiter's. Only the first ends this wait.
	for {
		if ctx.Err() != nil {
			return fmt.Errorf("%s: waiting for an event: %w", f.device, context.Cause(ctx))
		}
		err := f.waitOnce(ctx, get)
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
	}
}

// waitOnce is wait until the deadline of the file passes, which is os.ErrDeadlineExceeded. The end
// of ctx lets it pass.
func (f *eventFile) waitOnce(ctx context.Context, get func() (done bool, err error)) error {
	if err := f.file.SetReadDeadline(time.Time{}); err != nil {
		return f.failed(err)
	}
	stop := context.AfterFunc(ctx, func() { _ = f.file.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()

	var getErr error
	err := f.raw.Read(func(uintptr) bool {
		var done bool
		done, getErr = get()
		return done || getErr != nil
	})
	switch {
	case getErr != nil:
		return getErr
	case err == nil, errors.Is(err, os.ErrDeadlineExceeded):
		return err
	}
	return f.failed(err)
}

// failed gives the error of a closed file, for which the runtime has no name, the name ErrClosed.
func (f *eventFile) failed(err error) error {
	if f.closed.Load() {
		err = ErrClosed
	}
	return fmt.Errorf("%s: waiting for an event: %w", f.device, err)
}

// close ends a wait that is under way. Nil may be closed: a context whose descriptor
// could not be had.
func (f *eventFile) close() {
	if f == nil {
		return
	}
	f.closed.Store(true)
	_ = f.file.Close() // a duplicate, only read from
}
