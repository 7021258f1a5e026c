package ibv

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"syscall"
	"time"
)

// eventFile waits on a descriptor of the library with the runtime's poller. The descriptor is a
// context's async_fd, or belongs to asynchronous queries. We wait on a duplicate: the library closes
// its own descriptor with the object, and another file could then get the same number.
type eventFile struct {
	device string
	file   *os.File
	raw    syscall.RawConn
	turn   chan struct{} // full while somebody waits, because the file has only one deadline
	closed atomic.Bool
}

// newEventFile duplicates fd. On error the library's descriptor is as it was, or non-blocking.
func newEventFile(fd int, device string) (*eventFile, error) {
	own, err := syscall.Dup(fd)
	if err != nil {
		return nil, fmt.Errorf("%s: duplicating its event descriptor: %w", device, err)
	}
	syscall.CloseOnExec(own)

	// O_NONBLOCK belongs to the open file, and both descriptors share it. So the library gets EAGAIN
	// instead of blocking.
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
	return &eventFile{
		device: device,
		file:   f,
		raw:    raw,
		turn:   make(chan struct{}, 1),
	}, nil
}

// wait calls get now, and again whenever the descriptor becomes readable. It returns when get is done
// or fails, or when ctx ends.
func (f *eventFile) wait(ctx context.Context, get func() (done bool, err error)) error {
	select {
	case f.turn <- struct{}{}:
		defer func() { <-f.turn }()
	case <-ctx.Done():
		return fmt.Errorf("%s: waiting for an event: %w", f.device, context.Cause(ctx))
	}

	// The end of ctx sets the deadline. The end of an earlier waiter's context may also set it late,
	// and this must not end our wait.
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

// waitOnce is wait, but also returns os.ErrDeadlineExceeded when the file's deadline passes. The end of
// ctx sets a deadline in the past.
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

// failed wraps an error of the file. After close it becomes ErrClosed, because the runtime returns an
// error without a name.
func (f *eventFile) failed(err error) error {
	if f.closed.Load() {
		err = ErrClosed
	}
	return fmt.Errorf("%s: waiting for an event: %w", f.device, err)
}

// close ends a running wait. A nil eventFile can be closed too: that of a context without a descriptor.
func (f *eventFile) close() {
	if f == nil {
		return
	}
	f.closed.Store(true)
	_ = f.file.Close() // we only read from it, so no data can be lost
}
