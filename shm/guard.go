package shm

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// Guard runs fn, and turns a fault on mapped memory inside it into ErrTruncated.
//
// Only the file's owner can truncate a mirror under a reader, and a writer never does: a writer that takes over cuts only
// a segment that was never declared. OpenReader, Lookup, Entries, Snapshot, Cursor.Next, Wait and Check are guarded.
// HandleCounter.Load, Live.Load and Device.Load are not: a guard costs ten times the load. A program that must survive the
// truncation of its mirror wraps its loop in Guard.
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
		f, ok := e.(interface{ Addr() uintptr })
		if ok && f.Addr() >= 4096 { // an address in the first page comes from a nil pointer: a mistake of the program
			return fmt.Errorf("fault at address %#x: the file was cut short under the mapping: open it again: %w", f.Addr(), ErrTruncated)
		}
	}
	panic(r)
}
