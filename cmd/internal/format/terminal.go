package format

import "strings"

// Control sequences of a terminal (ECMA-48; the alternate screen is xterm's).
const (
	EnterScreen = "\x1b[?1049h\x1b[?25l"
	LeaveScreen = "\x1b[?25h\x1b[?1049l"
	ToOrigin    = "\x1b[H"
	ClearLine   = "\x1b[K"
	ClearBelow  = "\x1b[J"
)

// DrawOver returns the sequence that draws text over the screen, each line cut at width if width is
// above 0. No line is blank in between, so the screen does not flicker.
func DrawOver(text string, width int) string {
	var b strings.Builder
	b.WriteString(ToOrigin)
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if runes := []rune(line); width > 0 && len(runes) > width {
			line = string(runes[:width-1]) + "…"
		}
		b.WriteString(line + ClearLine + "\r\n")
	}
	b.WriteString(ClearBelow)
	return b.String()
}
