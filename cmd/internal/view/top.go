package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// sortCounters orders counters as --sort says; by name where they are equal.
func sortCounters(counters []counterView, by string) {
	slices.SortStableFunc(counters, func(a, b counterView) int {
		order := 0
		switch by {
		case "packets":
			order = cmp.Compare(b.Packets, a.Packets)
		case "bytes":
			order = cmp.Compare(b.Bytes, a.Bytes)
		case "rate":
			order = cmp.Compare(b.PacketsPerSec, a.PacketsPerSec)
		}
		return cmp.Or(order, strings.Compare(a.Name, b.Name))
	})
}

// renderTop returns the screen of top, at most height lines where height is
// above 0: what does not fit is counted in the last line.
func renderTop(r *reading, height int) string {
	shown := r.Counters
	const title, heading, more, between = 1, 1, 1, 1
	room := height - title - heading - more
	if flows, completions := byKind(r.Counters); len(flows) > 0 && len(completions) > 0 {
		room -= between + heading
	}
	if height > 0 && len(shown) > room {
		shown = shown[:max(0, room)]
	}
	flows, completions := byKind(shown)
	t := table{heading: []string{"NAME", ">PACKETS", ">BYTES", ">PACKETS/S", ">BYTES/S", ">AGE", "SOURCE", "BASIS", "NOTE"}}
	for _, c := range flows {
		t.add(c.Name, c.firstCell(), c.secondCell(), c.rateCell(c.PacketsPerSec), c.rateCell(c.BytesPerSec),
			c.ageCell(r), c.sourceCell(), orDash(c.ByteBasis), c.note())
	}
	below := table{heading: []string{"NAME", ">COMPLETIONS", ">ERRORS", ">COMPLETIONS/S", ">ERRORS/S", ">AGE", "SOURCE", "NOTE"}}
	for _, c := range completions {
		below.add(c.Name, c.firstCell(), c.secondCell(), c.rateCell(c.PacketsPerSec), c.rateCell(c.BytesPerSec),
			c.ageCell(r), c.sourceCell(), c.note())
	}
	screen := fmt.Sprintf("%s  %s  writer %s\n", r.Path, plural(uint64(len(r.Counters)), "counter", "counters"), r.Writer) + stack(t, below)
	if hidden := len(r.Counters) - len(shown); hidden > 0 {
		screen += fmt.Sprintf("… %d more: name some, or --sort rate\n", hidden)
	}
	return screen
}

// Control sequences of a terminal (ECMA-48; the alternate screen is xterm's).
const (
	enterScreen = "\x1b[?1049h\x1b[?25l"
	leaveScreen = "\x1b[?25h\x1b[?1049l"
	toOrigin    = "\x1b[H"
	clearLine   = "\x1b[K"
	clearBelow  = "\x1b[J"
)

// drawOver returns what draws text over the screen that is there, each line
// cut at width where width is above 0. No line is blank in between, so nothing flickers.
func drawOver(text string, width int) string {
	var b strings.Builder
	b.WriteString(toOrigin)
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if runes := []rune(line); width > 0 && len(runes) > width {
			line = string(runes[:width-1]) + "…"
		}
		b.WriteString(line + clearLine + "\r\n")
	}
	b.WriteString(clearBelow)
	return b.String()
}
