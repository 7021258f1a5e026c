package view

import (
	"fmt"
	"io"
	"time"

	"github.com/flowtally/flowtally/cmd/internal/format"
	"github.com/flowtally/flowtally/shm"
)

// Change is one record of the history as it is shown.
type Change struct {
	Position     uint64
	Counter      Counter // without its value; the handle alone where the counter was removed before watch looked it up
	Value        shm.Value
	Cycle        uint64
	HasDelta     bool  // the value before is known
	Since        int64 // when that was sampled, in ns of CLOCK_MONOTONIC
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
	zero time.Time // the wall clock at 0 of CLOCK_MONOTONIC, as it was when this was made
}

func NewChangePrinter(out io.Writer, json bool) ChangePrinter {
	return ChangePrinter{out: out, json: json, zero: MonotonicZero()}
}

func (p ChangePrinter) Change(c Change) error {
	at := p.zero.Add(time.Duration(c.Value.SampledAt))
	if p.json {
		j := ChangeJSON{
			Schema: 1, Position: c.Position, Time: at.UTC().Format(time.RFC3339Nano), SampledAtNS: c.Value.SampledAt, Cycle: c.Cycle,
		}
		seen := c.Counter
		seen.SampledAt = c.Value.SampledAt
		j.statusJSON = seen.status(p.zero)
		if seen.Name != "" {
			labels := labelsJSON(seen.Labels)
			j.Name, j.Labels = &seen.Name, &labels
		} else {
			j.statusJSON = statusJSON{SampledAt: j.SampledAt, Generation: j.Generation, Gone: j.Gone}
		}
		var firstDelta, secondDelta *uint64
		if c.HasDelta {
			firstDelta, secondDelta = &c.PacketsDelta, &c.BytesDelta
			seen.setRate(c.PacketsDelta, c.BytesDelta, c.Value.SampledAt-c.Since)
		}
		j.Direction, j.rateJSON = seen.directionJSON(), seen.rates()
		if c.Counter.Completion() {
			j.Completions, j.Errors, j.CompletionsDelta, j.ErrorsDelta = &c.Value.Packets, &c.Value.Bytes, firstDelta, secondDelta
		} else {
			j.Packets, j.Bytes, j.PacketsDelta, j.BytesDelta = &c.Value.Packets, &c.Value.Bytes, firstDelta, secondDelta
		}
		return format.JSON(p.out, j)
	}
	name := format.Printable(c.Counter.Name)
	if name == "" {
		name = "(removed)"
	}
	first, second := "-", "-"
	if c.HasDelta {
		first, second = "+"+format.Count(c.PacketsDelta), "+"+format.Count(c.BytesDelta)
	}
	firstUnit, secondUnit := c.Counter.units()
	_, err := fmt.Fprintf(p.out, "%s  %s  %s %s (%s)  %s %s (%s)\n",
		at.Format("15:04:05.000"), name, format.Count(c.Value.Packets), firstUnit, first, format.Count(c.Value.Bytes), secondUnit, second)
	return err
}

func (p ChangePrinter) Lost(n uint64) error {
	if p.json {
		return format.JSON(p.out, LostJSON{1, n})
	}
	_, err := fmt.Fprintf(p.out, "… %s lost: overwritten before they were read\n", format.Plural(n, "change", "changes"))
	return err
}
