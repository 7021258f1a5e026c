package view

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/flowtally/flowtally/cmd/internal/format"
)

// Sort orders counters as --sort says; by name where they are equal.
func Sort(counters []Counter, by string) {
	slices.SortStableFunc(counters, func(a, b Counter) int {
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

// Top returns the screen of top, at most height lines if height is above 0: the last line counts
// the rows that do not fit.
func Top(r *Reading, height int) string {
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
	t := format.Table{Heading: []string{"NAME", ">PACKETS", ">BYTES", ">PACKETS/S", ">BYTES/S", ">AGE", "SOURCE", "BASIS", "NOTE"}}
	for _, c := range flows {
		t.Add(c.Name, c.firstCell(), c.secondCell(), c.rateCell(c.PacketsPerSec), c.rateCell(c.BytesPerSec),
			c.ageCell(r), c.sourceCell(), format.OrDash(c.ByteBasis), c.note())
	}
	below := format.Table{Heading: []string{"NAME", ">COMPLETIONS", ">ERRORS", ">COMPLETIONS/S", ">ERRORS/S", ">AGE", "SOURCE", "NOTE"}}
	for _, c := range completions {
		below.Add(c.Name, c.firstCell(), c.secondCell(), c.rateCell(c.PacketsPerSec), c.rateCell(c.BytesPerSec),
			c.ageCell(r), c.sourceCell(), c.note())
	}
	screen := fmt.Sprintf("%s  %s  writer %s\n", r.Path, format.Plural(uint64(len(r.Counters)), "counter", "counters"), r.Writer) + format.Stack(t, below)
	if hidden := len(r.Counters) - len(shown); hidden > 0 {
		screen += fmt.Sprintf("… %d more: name some, or --sort rate\n", hidden)
	}
	return screen
}
