package view

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/flowtally/flowtally/cmd/internal/format"
)

// Sort orders counters by a column of --sort, and equal ones by name.
func Sort(counters []Counter, by string) {
	slices.SortStableFunc(counters, func(a, b Counter) int {
		order := 0
		switch by {
		case "packets":
			order = cmp.Compare(b.Packets, a.Packets)
		case "bytes":
			order = cmp.Compare(b.Bytes, a.Bytes)
		case "rate", "trend": // one reading has no trend
			order = cmp.Compare(b.PacketsPerSec, a.PacketsPerSec)
		case "bits", "byte-rate":
			order = cmp.Compare(b.BytesPerSec, a.BytesPerSec)
		case "age":
			order = cmp.Compare(a.SampledAt, b.SampledAt)
		case "source":
			order = strings.Compare(a.Source, b.Source)
		case "note":
			order = strings.Compare(b.Note(), a.Note())
		}
		return cmp.Or(order, strings.Compare(a.Name, b.Name))
	})
}

// TopJSON is a line of top -o json: the counters at one look, with their rates since the look before.
type TopJSON struct {
	Time string `json:"time"` // of the look, RFC 3339
	ReadingJSON
}

// ToTopJSON returns the line for a reading.
func ToTopJSON(r *Reading) TopJSON { return TopJSON{wallClock(r.Zero, r.Now), ToJSON(r)} }

// Top returns the table that top prints for each look if its output is not a terminal.
func Top(r *Reading) string {
	flows, completions := byKind(r.Counters)
	t := format.Table{Heading: []string{"NAME", ">PACKETS", ">BYTES", ">PACKETS/S", ">BYTES/S", ">AGE", "SOURCE", "BASIS", "NOTE"}}
	for _, c := range flows {
		t.Add(c.Name, c.firstCell(), c.secondCell(), c.rateCell(c.PacketsPerSec), c.secondRateCell(),
			c.AgeCell(r), c.SourceCell(), format.OrDash(c.ByteBasis), c.Note())
	}
	below := format.Table{Heading: []string{"NAME", ">COMPLETIONS", ">ERRORS", ">COMPLETIONS/S", ">ERRORS/S", ">AGE", "SOURCE", "NOTE"}}
	for _, c := range completions {
		below.Add(c.Name, c.firstCell(), c.secondCell(), c.rateCell(c.PacketsPerSec), c.secondRateCell(),
			c.AgeCell(r), c.SourceCell(), c.Note())
	}
	return fmt.Sprintf("%s  %s  writer %s\n", r.Path, format.Plural(uint64(len(r.Counters)), "counter", "counters"), r.Writer) + format.Stack(t, below)
}
