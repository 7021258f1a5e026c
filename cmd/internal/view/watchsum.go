package view

import (
	"cmp"
	"fmt"
	"time"

	"github.com/flowtally/flowtally/cmd/internal/format"
)

// SumChange is a sum that differs from the sum that was seen before.
type SumChange struct {
	Reading      *Reading // that the sum belongs to
	Sum          Counter
	HasDelta     bool // both sums have a value, and are of the same counters
	PacketsDelta uint64
	BytesDelta   uint64
}

// ChangedSums returns the sums of a reading that differ from those before.
func ChangedSums(before []Counter, r *Reading) (out []SumChange) {
	type id struct{ name, kind, unit string }
	old := make(map[id]*Counter, len(before))
	for i := range before {
		c := &before[i]
		old[id{c.Name, c.Kind, c.Unit}] = c
	}
	for _, c := range r.Counters {
		ch := SumChange{Reading: r, Sum: c}
		was := old[id{c.Name, c.Kind, c.Unit}]
		same := was != nil && c.Index == was.Index && c.Generation == was.Generation && c.Present() == was.Present()
		if same && c.Packets == was.Packets && c.Bytes == was.Bytes {
			continue
		}
		if same && c.Present() && c.Packets >= was.Packets && c.Bytes >= was.Bytes && c.Sum.Absent == was.Sum.Absent {
			ch.HasDelta, ch.PacketsDelta, ch.BytesDelta = true, c.Packets-was.Packets, c.Bytes-was.Bytes
			if c.hasInterval(was) {
				ch.Sum.setRate(ch.PacketsDelta, ch.BytesDelta, c.SampledAt-was.SampledAt)
			}
		}
		out = append(out, ch)
	}
	return out
}

// SumChangeJSON is one line of watch --sum-by -o json. The deltas are null where the sum before has no value, or is of
// other counters. Programs read it: fields are only added.
type SumChangeJSON struct {
	Schema   int           `json:"schema"`
	Time     string        `json:"time"` // of the oldest value, RFC 3339; without a value, of the look
	Snapshot *snapshotJSON `json:"snapshot"`
	sumJSON
	PacketsDelta     *uint64 `json:"packets_delta"`
	BytesDelta       *uint64 `json:"bytes_delta"`
	CompletionsDelta *uint64 `json:"completions_delta"`
	ErrorsDelta      *uint64 `json:"errors_delta"`
}

// Sum prints a sum that has changed.
func (p ChangePrinter) Sum(ch SumChange) error {
	c := ch.Sum
	at := cmp.Or(c.SampledAt, ch.Reading.Now)
	if p.json {
		j := SumChangeJSON{Schema: 1, Time: wallClock(p.zero, at), Snapshot: toSnapshotJSON(ch.Reading.Snapshot), sumJSON: c.sumJSON(ch.Reading)}
		if ch.HasDelta {
			first, second := &ch.PacketsDelta, &ch.BytesDelta
			if !c.hasSecond() {
				second = nil
			}
			if c.Completion() {
				j.CompletionsDelta, j.ErrorsDelta = first, second
			} else {
				j.PacketsDelta, j.BytesDelta = first, second
			}
		}
		return format.JSON(p.out, j)
	}
	first, second := "-", "-"
	if ch.HasDelta {
		first = "+" + format.Count(ch.PacketsDelta)
		if c.hasSecond() {
			second = "+" + format.Count(ch.BytesDelta)
		}
	}
	firstUnit, secondUnit := c.units()
	line := fmt.Sprintf("%s  %s  %s %s (%s)  %s %s (%s)", p.zero.Add(time.Duration(at)).Format("15:04:05.000"),
		format.Printable(c.Name), c.firstCell(), firstUnit, first, c.secondCell(), secondUnit, second)
	if note := c.Note(); note != "" {
		line += "  " + note
	}
	_, err := fmt.Fprintln(p.out, line)
	return err
}

// units names the two values.
func (c Counter) units() (first, second string) {
	if c.Completion() {
		return "completions", "errors"
	}
	return "packets", "bytes"
}
