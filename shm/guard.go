package shm

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// Guard calls fn, and turns a fault on mapped memory inside it into ErrTruncated.
//
// A fault means that somebody has cut the file short under its mapping. Only the file's owner can do that, and a writer never
// does: a writer that takes over cuts only a segment that was never declared. OpenReader, Lookup, Entries, Snapshot,
// Cursor.Next, Wait and Check are guarded. HandleCounter.Load, Live.Load and Device.Load are not, because a guard costs ten
// times as much as the load. A program that must survive the truncation of its mirror should wrap its loop in Guard.
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

// faulted returns the error for a recovered memory fault. It panics again with anything else.
func faulted(r any) error {
	if e, ok := r.(runtime.Error); ok {
		f, ok := e.(interface{ Addr() uintptr })
		if ok && f.Addr() >= 4096 { // a lower address comes from a nil pointer, which is a bug
			return fmt.Errorf("fault at address %#x: the file was cut short under the mapping: open it again: %w", f.Addr(), ErrTruncated)
		}
	}
	panic(r)
}
