package format

import (
	"strings"

	"github.com/charmbracelet/x/term"
)

// IsTerminal reports whether f is a terminal. /dev/null, which is a character device too, is not one.
func IsTerminal(f any) bool {
	file, ok := f.(term.File)
	return ok && term.IsTerminal(file.Fd())
}

// TerminalWidth returns the number of columns of a terminal, or 0.
func TerminalWidth(f any) int {
	file, ok := f.(term.File)
	if !ok {
		return 0
	}
	width, _, _ := term.GetSize(file.Fd()) // 0 on error
	return width
}

// Control sequences of a terminal (ECMA-48; the alternate screen is xterm's).
const (
	EnterScreen = "\x1b[?1049h\x1b[?25l"
	LeaveScreen = "\x1b[?25h\x1b[?1049l"
	ClearLine   = "\x1b[K"
	toOrigin    = "\x1b[H"
	clearBelow  = "\x1b[J"
)

// DrawOver returns the sequence that draws text over the screen. It cuts lines at width, unless width is 0. It clears
// only the rest of each line and not the whole screen, which would flicker.
func DrawOver(text string, width int) string {
	var b strings.Builder
	b.WriteString(toOrigin)
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if runes := []rune(line); width > 0 && len(runes) > width {
			line = string(runes[:width-1]) + "…"
		}
		b.WriteString(line + ClearLine + "\r\n")
	}
	b.WriteString(clearBelow)
	return b.String()
}
