package top

import (
	"math"

	"github.com/flowtally/flowtally/cmd/internal/format"
	"github.com/flowtally/flowtally/cmd/internal/view"
)

// Column is a column of the table, by which it can be ordered.
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
	right     bool // the cells are flush right
	least     int  // cells of the terminal, so that the columns stand still at first
	most      int
	rank      int  // the column of the highest rank is left out first
	ascending bool // the order by the column, unless it is reversed
	byEntry   bool // the order needs no values
}

// describe is the table of columns.
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

// ParseColumn returns the column of that name; ok is false if no column has it.
func ParseColumn(name string) (c Column, ok bool) {
	for c, d := range describe {
		if d.name == name {
			return Column(c), true
		}
	}
	return 0, false
}

// key returns the number by which a row is ordered, and whether the row has one. end is the newest pass of the trends.
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

// sum returns the sum of the rates that are held, up to the pass end, and whether one of them is known.
func (t *trend) sum(end int64) (sum float64, known bool) {
	for pass := end - trendCells + 1; pass <= end; pass++ {
		v, ok := t.at(pass)
		sum += float64(v)
		known = known || ok
	}
	return sum, known
}

// reservations returns a number for the notes of a row. A severe one counts more than all lesser ones together.
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

// cell returns the text of a row in a column, without control characters.
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

// remark is the note of a row; of a counter of completions it begins with its errors.
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
