//go:build unix && !linux

package trust

import (
	"os"

	"golang.org/x/sys/unix"
)

// openFlags opens a file without blocking on a FIFO.
const openFlags = unix.O_RDONLY | unix.O_NONBLOCK

func thisProgram() string {
	self, err := os.Executable()
	if err != nil {
		return ""
	}
	return self
}

// hasAccessList returns false: on these systems an access control list only adds to the mode, or the owner has set it.
func hasAccessList(*os.File) bool { return false }

// OfKernel returns false, because this package knows the file systems of Linux only.
func OfKernel(*os.File) (bool, error) { return false, nil }

// OfUser returns false, because this package knows the file systems of Linux only.
func OfUser(*os.File) bool { return false }

// Reopen opens the file of a descriptor from Open for reading.
func Reopen(f *os.File) (*os.File, error) { return reopenByPath(f) }
