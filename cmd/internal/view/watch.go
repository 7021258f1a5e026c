package view

import (
	"fmt"
	"io"
	"time"

	"github.com/flowtally/flowtally/cmd/internal/format"
	"github.com/flowtally/flowtally/shm"
)

// Change is one record of the history.
type Change struct {
	Position     uint64
	Counter      Counter // without a value; only the handle if the counter was removed before watch could look it up
	Value        shm.Value
	Cycle        uint64
	HasDelta     bool  // the previous value is known
	Since        int64 // sample time of the previous value, in ns of CLOCK_MONOTONIC
	PacketsDelta uint64
	BytesDelta   uint64
}

// ChangeJSON is one line of watch -o json. Packets and bytes, with their deltas, are null
// for a completion counter, completions and errors for any other; the deltas are null
// where the value before is not known, the name, the labels and most of the standing where
// the counter was removed before it could be asked for them.
type ChangeJSON struct {
	Schema       int     `json:"schema"`
	Position     uint64  `json:"position"`
	Time         string  `json:"time"`
	Name         *string `json:"name"`
	Packets      *uint64 `json:"packets"`
	Bytes        *uint64 `json:"bytes"`
	PacketsDelta *uint64 `json:"packets_delta"`
	BytesDelta   *uint64 `json:"bytes_delta"`
	SampledAtNS  int64   `json:"sampled_at_ns"`
	Cycle        uint64  `json:"cycle"`

	Completions      *uint64 `json:"completions"`
	Errors           *uint64 `json:"errors"`
	CompletionsDelta *uint64 `json:"completions_delta"`
	ErrorsDelta      *uint64 `json:"errors_delta"`

	statusJSON
	Labels    *map[string]string `json:"labels"`
	Direction *string            `json:"direction"` // ingress or egress; null: not a flow
	rateJSON                     // since the change before
}

// LostJSON is the line in place of changes that were overwritten unread.
type LostJSON struct {
	Schema int    `json:"schema"`
	Lost   uint64 `json:"lost"`
}

// ChangePrinter prints changes, one a line.
type ChangePrinter struct {
	out  io.Writer
	json bool
	zero time.Time // the wall clock at 0 of CLOCK_MONOTONIC, at the start
}

// NewChangePrinter returns a printer to out.
func NewChangePrinter(out io.Writer, json bool) ChangePrinter {
	return ChangePrinter{out: out, json: json, zero: MonotonicZero()}
}

// Change prints a change.
func (p ChangePrinter) Change(c Change) error {
	if p.json {
		return format.JSON(p.out, p.changeJSON(c))
	}

	name := format.Printable(c.Counter.Name)
	if name == "" {
		name = "(removed)"
	}
	first, second := "-", "-"
	if c.HasDelta {
		first = "+" + format.Count(c.PacketsDelta)
		second = "+" + format.Count(c.BytesDelta)
	}
	at := p.zero.Add(time.Duration(c.Value.SampledAt)).Format("15:04:05.000")
	firstUnit, secondUnit := c.Counter.units()
	_, err := fmt.Fprintf(p.out, "%s  %s  %s %s (%s)  %s %s (%s)\n",
		at, name, format.Count(c.Value.Packets), firstUnit, first, format.Count(c.Value.Bytes), secondUnit, second)
	return err
}

func (p ChangePrinter) changeJSON(c Change) ChangeJSON {
	seen := c.Counter
	seen.SampledAt = c.Value.SampledAt
	var firstDelta, secondDelta *uint64
	if c.HasDelta {
		firstDelta, secondDelta = &c.PacketsDelta, &c.BytesDelta
		seen.setRate(c.PacketsDelta, c.BytesDelta, c.Value.SampledAt-c.Since)
	}

	j := ChangeJSON{
		Schema:      1,
		Position:    c.Position,
		Time:        wallClock(p.zero, c.Value.SampledAt),
		SampledAtNS: c.Value.SampledAt,
		Cycle:       c.Cycle,
		Direction:   seen.directionJSON(),
		statusJSON:  seen.status(p.zero),
		rateJSON:    seen.rates(),
	}
	if seen.Name != "" {
		labels := labelsJSON(seen.Labels)
		j.Name, j.Labels = &seen.Name, &labels
	} else { // removed before it was looked up, so the rest is unknown
		j.statusJSON = statusJSON{SampledAt: j.SampledAt, Generation: j.Generation, Gone: j.Gone}
	}
	if seen.Completion() {
		j.Completions, j.Errors = &c.Value.Packets, &c.Value.Bytes
		j.CompletionsDelta, j.ErrorsDelta = firstDelta, secondDelta
	} else {
		j.Packets, j.Bytes = &c.Value.Packets, &c.Value.Bytes
		j.PacketsDelta, j.BytesDelta = firstDelta, secondDelta
	}
	return j
}

// Lost prints a line in place of n changes, overwritten before they were read.
func (p ChangePrinter) Lost(n uint64) error {
	if p.json {
		return format.JSON(p.out, LostJSON{1, n})
	}
	_, err := fmt.Fprintf(p.out, "… %s lost: overwritten before they were read\n", format.Plural(n, "change", "changes"))
	return err
}
