package cli

import (
	"fmt"
	"io"
	"time"

	"github.com/flowtally/flowtally/shm"
)

// change is one record of the history as it is shown.
type change struct {
	Position     uint64
	Name         string // "": the counter was removed before it could be asked for its name
	Value        shm.Value
	Cycle        uint64
	HasDelta     bool // the value before is known
	PacketsDelta uint64
	BytesDelta   uint64
}

// changeJSON is one line of watch -o json; the deltas are null where the value
// before is not known, the name where the counter is gone.
type changeJSON struct {
	Schema       int     `json:"schema"`
	Position     uint64  `json:"position"`
	Time         string  `json:"time"`
	Name         *string `json:"name"`
	Packets      uint64  `json:"packets"`
	Bytes        uint64  `json:"bytes"`
	PacketsDelta *uint64 `json:"packets_delta"`
	BytesDelta   *uint64 `json:"bytes_delta"`
	SampledAtNS  int64   `json:"sampled_at_ns"`
	Cycle        uint64  `json:"cycle"`
}

// lostJSON is the line in place of changes that were overwritten unread.
type lostJSON struct {
	Schema int    `json:"schema"`
	Lost   uint64 `json:"lost"`
}

// changePrinter prints changes, one a line.
type changePrinter struct {
	out  io.Writer
	json bool
	zero time.Time // the wall clock at 0 of CLOCK_MONOTONIC, as it was when this was made
}

func newChangePrinter(out io.Writer, json bool) changePrinter {
	return changePrinter{out: out, json: json, zero: time.Now().Add(-time.Duration(shm.Now()))}
}

func (p changePrinter) change(c change) error {
	at := p.zero.Add(time.Duration(c.Value.SampledAt))
	if p.json {
		j := changeJSON{
			Schema: 1, Position: c.Position, Time: at.UTC().Format(time.RFC3339Nano),
			Packets: c.Value.Packets, Bytes: c.Value.Bytes, SampledAtNS: c.Value.SampledAt, Cycle: c.Cycle,
		}
		if c.Name != "" {
			j.Name = &c.Name
		}
		if c.HasDelta {
			j.PacketsDelta, j.BytesDelta = &c.PacketsDelta, &c.BytesDelta
		}
		return printJSON(p.out, j)
	}
	name := c.Name
	if name == "" {
		name = "(removed)"
	}
	packets, bytes := "-", "-"
	if c.HasDelta {
		packets, bytes = "+"+humanCount(c.PacketsDelta), "+"+humanCount(c.BytesDelta)
	}
	_, err := fmt.Fprintf(p.out, "%s  %s  %s packets (%s)  %s bytes (%s)\n",
		at.Format("15:04:05.000"), name, humanCount(c.Value.Packets), packets, humanCount(c.Value.Bytes), bytes)
	return err
}

func (p changePrinter) lost(n uint64) error {
	if p.json {
		return printJSON(p.out, lostJSON{1, n})
	}
	_, err := fmt.Fprintf(p.out, "… %s lost: overwritten before they were read\n", plural(n, "change", "changes"))
	return err
}
