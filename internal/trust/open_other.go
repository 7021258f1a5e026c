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
