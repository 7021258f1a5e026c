package shm

import (
	"errors"
	"fmt"
)

// Sentinels. The text of an error that wraps one names the file or the counter, the cause and the next step.
var (
	// ErrNotFound: no live counter has that name.
	ErrNotFound = errors.New("no such counter")
	// ErrGone: the handle's counter was removed. Its slot may serve another counter.
	ErrGone = errors.New("counter is gone")
	// ErrBusy: the writer published during each of many tries to read. Try again.
	ErrBusy = errors.New("writer publishes faster than this can be read")
	// ErrExists: a live counter has that name already.
	ErrExists = errors.New("counter exists")
	// ErrFull: no slot is free, or no space is left for the file.
	ErrFull = errors.New("full")
	// ErrInvalid: an argument breaks a rule; the text says which.
	ErrInvalid = errors.New("invalid")
	// ErrInUse: another writer holds the mirror.
	ErrInUse = errors.New("mirror is in use by another writer")
	// ErrPermission: an untrusted user owns, or may write to, the file or its directory.
	ErrPermission = errors.New("unsafe owner or mode")
	// ErrFormat: the file is not a mirror, or not one of this version.
	ErrFormat = errors.New("not a mirror of this format")
	// ErrNotReady: the writer has not finished making the file. Try again.
	ErrNotReady = errors.New("mirror is not ready")
	// ErrTruncated: the file is shorter than its header says, and useless. Open the mirror again.
	ErrTruncated = errors.New("mirror is truncated")
	// ErrClosed: the reader or writer was closed.
	ErrClosed = errors.New("mirror closed")
	// ErrNoDevice: no device writes this counter's words, or it no longer writes them there. The counter's ordinary value
	// stays. Ask again once the catalogue has changed.
	ErrNoDevice = errors.New("no device writes this counter")
	// ErrNoLive: no process can read this counter where it is counted, or this process cannot, or the counter is no longer
	// counted there. Its ordinary value stays. Ask again once the catalogue has changed.
	ErrNoLive = errors.New("counter cannot be read live")
	// ErrStale: the writer gave this file up for ever. Another file has its name, or will have it: open that one.
	ErrStale = errors.New("mirror was replaced")
	// ErrNotAlive: the writer ended, or gives no sign of life, so no value will come.
	ErrNotAlive = errors.New("mirror has no living writer")
	// ErrCompletion: the completion counter that Wait waits for counted errors.
	ErrCompletion = errors.New("operations completed in error")
	// ErrNotSupported: this platform cannot do it.
	ErrNotSupported = fmt.Errorf("mirror writer needs Linux (tmpfs and fallocate): %w", errors.ErrUnsupported)
)
