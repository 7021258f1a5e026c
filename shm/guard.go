package shm

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// Guard runs fn and turns a fault on mapped memory inside it into ErrTruncated.
//
// A writer never truncates the pages that a reader maps, and only the file's owner could do it. (A writer that takes
// over cuts a segment that was never declared.) OpenReader, Lookup, Entries, Snapshot, Cursor.Next, Wait and Check are
// guarded. Counter.Load and Device.Load are not, because it would cost ten times the load: a program that must survive
// its mirror being truncated by its owner wraps its loop in Guard.
func Guard(fn func() error) (err error) {
	old := debug.SetPanicOnFault(true)
	defer func() {
		debug.SetPanicOnFault(old)
		if r := recover(); r != nil {
			err = faulted(r)
		}
	}()
	return fn()
}

// faulted returns the error for a recovered memory fault, and goes on panicking for anything else.
func faulted(r any) error {
	if e, ok := r.(runtime.Error); ok {
		// An address in the first page comes from a nil pointer: a mistake of the program.
		if f, ok := e.(interface{ Addr() uintptr }); ok && f.Addr() >= 4096 {
			return fmt.Errorf("fault at address %#x: the file was cut short under the mapping: open it again: %w", f.Addr(), ErrTruncated)
		}
	}
	panic(r)
}
