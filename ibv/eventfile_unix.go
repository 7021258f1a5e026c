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

// eventFile waits on a context's async_fd with the runtime's poller. It has a descriptor
// of its own, so that no number is used after the library closed it.
type eventFile struct {
	device string
	file   *os.File
	raw    syscall.RawConn
	one    sync.Mutex // waiters take turns: they share the deadline
	ended  atomic.Bool
}

func newEventFile(fd int, device string) (*eventFile, error) {
	own, err := syscall.Dup(fd)
	if err != nil {
		return nil, fmt.Errorf("%s: duplicating its event descriptor: %w", device, err)
	}
	syscall.CloseOnExec(own)
	// The flag belongs to the open file, which the library reads through: it gets EAGAIN
	// where it would have blocked.
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
	f.one.Lock()
	defer f.one.Unlock()
again:
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%s: waiting for an event: %w", f.device, context.Cause(ctx))
	}
	if err := f.file.SetReadDeadline(time.Time{}); err != nil {
		return f.failed(err)
	}
	stop := context.AfterFunc(ctx, func() { _ = f.file.SetReadDeadline(time.Unix(1, 0)) })
	var got error
	err := f.raw.Read(func(uintptr) bool {
		var done bool
		done, got = get()
		return done || got != nil
	})
	stop()
	switch {
	case got != nil:
		return got
	case err == nil:
		return nil
	case errors.Is(err, os.ErrDeadlineExceeded):
		goto again // for this ctx, or set late by the waiter before
	}
	return f.failed(err)
}

// failed gives the error of a closed file, for which the runtime has no name, the name ErrClosed.
func (f *eventFile) failed(err error) error {
	if f.ended.Load() {
		err = ErrClosed
	}
	return fmt.Errorf("%s: waiting for an event: %w", f.device, err)
}

// close ends a wait that is under way. Nil may be closed: a context whose descriptor
// could not be had.
func (f *eventFile) close() {
	if f != nil {
		f.ended.Store(true)
		_ = f.file.Close() // a duplicate, only read from
	}
}
