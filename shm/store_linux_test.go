package shm

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// A signal interrupts a reservation, which then starts again, and one that fails leaves the file as it was.
func TestReservationGoesOnAfterASignalAndFailsWhole(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "mirror"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(4096); err != nil {
		t.Fatal(err)
	}
	length := func() int64 {
		st, err := f.Stat()
		if err != nil {
			t.Fatal(err)
		}
		return st.Size()
	}

	const n = 8716288
	calls := 0
	interrupted := func(fd int, mode uint32, off, size int64) error {
		if calls++; calls%2 == 1 {
			return unix.EINTR
		}
		return unix.Fallocate(fd, mode, off, size)
	}
	if err := inPieces(f, 4096, n, interrupted); err != nil || length() != 4096+n {
		t.Errorf("%v after %d calls, %d bytes, want %d", err, calls, length(), 4096+n)
	}

	full := func(fd int, mode uint32, off, size int64) error { // from the third piece on
		if off > 4096+1<<20 {
			return unix.ENOSPC
		}
		return unix.Fallocate(fd, mode, off, size)
	}
	if err := f.Truncate(4096); err != nil {
		t.Fatal(err)
	}
	if err := inPieces(f, 4096, n, full); !errors.Is(err, unix.ENOSPC) || length() != 4096 {
		t.Errorf("%v, %d bytes, want ENOSPC and 4096", err, length())
	}
}
