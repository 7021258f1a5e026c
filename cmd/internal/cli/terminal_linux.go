package cli

import (
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// terminalSize returns the lines and columns of the terminal w, or zeroes.
func terminalSize(w io.Writer) (height, width int) {
	f, ok := w.(*os.File)
	if !ok {
		return 0, 0
	}
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0, 0
	}
	return int(size.Row), int(size.Col)
}
