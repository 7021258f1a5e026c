package shm

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// TestCheckTouchesNoSlotThatWasNeverWritten: Check must not read holes of the
// file, because the kernel allocates and clears a page for each first read.
func TestCheckTouchesNoSlotThatWasNeverWritten(t *testing.T) {
	path := mirrorPath(t)
	w := mustCreate(t, Options{Path: path, History: -1})
	mustAdd(t, w, Entry{Name: "a"})

	checkFile(t, path)

	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	unused := int64(headerSize + BlockLen*entrySize)
	at, err := unix.Seek(int(f.Fd()), unused, unix.SEEK_DATA)
	if entries := int64(headerSize + SegmentLen*entrySize); err == nil && at < entries {
		t.Errorf("the check has had a page cleared at %d, between %d and %d", at, unused, entries)
	} else if err != nil && !errors.Is(err, unix.ENXIO) {
		t.Fatal(err)
	}
}
