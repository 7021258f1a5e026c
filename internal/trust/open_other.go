//go:build unix && !linux

package trust

import (
	"os"

	"golang.org/x/sys/unix"
)

// openFlags open a file without a wait for a FIFO's other end.
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

// OfKernel returns false: only on Linux is it known whether the kernel makes the text of a file.
func OfKernel(*os.File) (bool, error) { return false, nil }

// OfUser returns false: only on Linux is it known whether a user's program answers for the filesystem.
func OfUser(*os.File) bool { return false }

// Reopen opens, for reading, the file of a descriptor that Open returned.
func Reopen(f *os.File) (*os.File, error) { return reopenByPath(f) }
