//go:build unix && !linux

package trust

import (
	"os"

	"golang.org/x/sys/unix"
)

// openFlags do not wait for a FIFO.
const openFlags = unix.O_RDONLY | unix.O_NONBLOCK

func thisProgram() string {
	self, err := os.Executable()
	if err != nil {
		return ""
	}
	return self
}

// The access control lists of these systems only add to the mode of a file or are set by its owner.
func hasAccessList(*os.File) bool { return false }

// OfKernel reports whether the text of the file is made by the kernel, which is known on Linux alone.
func OfKernel(*os.File) (bool, error) { return false, nil }

// OfUser reports whether a user's program answers for the filesystem, which is known on Linux alone.
func OfUser(*os.File) bool { return false }

// Reopen opens the file that a descriptor of Open names, for reading.
func Reopen(f *os.File) (*os.File, error) { return reopenByPath(f) }
