package top

import (
	"math"

	"github.com/flowtally/flowtally/cmd/internal/format"
	"github.com/flowtally/flowtally/cmd/internal/view"
)

// Column is a column of the table. The table can be ordered by any of them.
type Column int

// The columns, from left to right.
const (
	Name Column = iota
	PacketRate
	BitRate
	ByteRate
	Trend
	Packets
	Bytes
	Age
	Source
	Note
	columns
)

// column describes a Column.
type column struct {
	name      string // of --sort
	heading   string
	right     bool // flush right
	least     int  // width in cells of the terminal, so that growing values do not move the columns at first
	most      int  // width
	rank      int  // on a narrow terminal, columns of a high rank disappear first
	ascending bool // the default direction of the order
	byEntry   bool // the order depends on the entry alone, so it needs no values
}

// describe has the properties of each column.
var describe = [columns]column{
	Name:       {name: "name", heading: "NAME", most: 63, ascending: true, byEntry: true},
	PacketRate: {name: "rate", heading: "PKTS/S", right: true, least: 7, most: 8, rank: 1},
	BitRate:    {name: "bits", heading: "BITS/S", right: true, least: 7, most: 8, rank: 2},
	ByteRate:   {name: "byte-rate", heading: "BYTES/S", right: true, least: 7, most: 8, rank: 9},
	Trend:      {name: "trend", heading: "TREND", least: 8, most: trendCells, rank: 4},
	Packets:    {name: "packets", heading: "PACKETS", right: true, least: 12, most: 26, rank: 5},
	Bytes:      {name: "bytes", heading: "BYTES", right: true, least: 12, most: 26, rank: 8},
	Age:        {name: "age", heading: "AGE", right: true, least: 5, most: 7, rank: 6},
	Source:     {name: "source", heading: "SOURCE", most: 28, rank: 7, ascending: true, byEntry: true},
	Note:       {name: "note", heading: "NOTE", most: 60, rank: 3},
}

// ParseColumn returns the column with a name of --sort. ok is false if there is none.
func ParseColumn(name string) (c Column, ok bool) {
	for c, d := range describe {
		if d.name == name {
			return Column(c), true
		}
	}
	return 0, false
}

// key returns the number by which to order a row, and whether the row has one. end is the newest pass of the trends.
func (c Column) key(r *row, reading *view.Reading, end int64) (float64, bool) {
	switch c {
	case PacketRate:
		return r.PacketsPerSec, r.HasRate
	case BitRate, ByteRate:
		return r.BytesPerSec, r.HasRate && r.hasBytes()
	case Packets:
		return float64(r.Counter.Packets), r.Present()
	case Bytes:
		return float64(r.Counter.Bytes), r.Present() && r.hasBytes()
	case Age:
		return float64(reading.Now - r.SampledAt), r.Present()
	case Trend:
		return r.trend.sum(end)
	case Note:
		return r.reservations()
	}
	return math.NaN(), false
}

// sum returns the sum of the rates up to the pass end, and whether at least one of them is known.
func (t *trend) sum(end int64) (sum float64, known bool) {
	for pass := end - trendCells + 1; pass <= end; pass++ {
		v, ok := t.at(pass)
		sum += float64(v)
		known = known || ok
	}
	return sum, known
}

// reservations returns a number by which to order the notes of rows: each note weighs more than all less severe ones
// together.
func (r *row) reservations() (n float64, any bool) {
	for severity, holds := range [...]bool{
		r.Discontinuities > 0,
		r.Ambiguous,
		r.Unread,
		r.Stale,
		r.Present() && !r.Valid,
		!r.Present(),
		r.Gone,
	} {
		if holds {
			n += float64(int(1) << severity)
		}
	}
	return n, n > 0
}

// cell returns the text of a cell. It has no control characters, whatever the mirror contains.
func (c Column) cell(r *row, reading *view.Reading) string {
	switch c {
	case Name:
		return format.Printable(r.Counter.Name)
	case PacketRate:
		return rate(r.PacketsPerSec, r.HasRate)
	case BitRate:
		return rate(8*r.BytesPerSec, r.HasRate && r.hasBytes())
	case ByteRate:
		return rate(r.BytesPerSec, r.HasRate && r.hasBytes())
	case Packets:
		return total(r.Counter.Packets, r.Present())
	case Bytes:
		return total(r.Counter.Bytes, r.Present() && r.hasBytes())
	case Age:
		return r.AgeCell(reading)
	case Source:
		return format.Printable(r.SourceCell())
	case Note:
		return r.remark()
	}
	return ""
}

func rate(perSecond float64, has bool) string {
	if !has {
		return "-"
	}
	return format.Rate(perSecond)
}

func total(n uint64, has bool) string {
	if !has {
		return "-"
	}
	return format.Count(n)
}

// remark returns the note of a row. For a completion counter it begins with the number of errors.
func (r *row) remark() string {
	note := r.Note()
	if !r.Completion() || !r.Present() {
		return note
	}
	errors := format.Plural(r.Counter.Bytes, "error", "errors")
	if note != "" {
		errors += ", " + note
	}
	return errors
}
