package view

import (
	"cmp"
	"fmt"
	"time"

	"github.com/flowtally/flowtally/cmd/internal/format"
)

// SumChange is a changed sum.
type SumChange struct {
	Reading      *Reading // of the new sum
	Sum          Counter
	HasDelta     bool // the old and the new sum have a value and are of the same counters
	PacketsDelta uint64
	BytesDelta   uint64
}

// ChangedSums returns the sums of a reading that have changed since before.
func ChangedSums(before []Counter, r *Reading) (out []SumChange) {
	type id struct{ name, kind, unit string }
	sumByID := make(map[id]*Counter, len(before))
	for i := range before {
		c := &before[i]
		sumByID[id{c.Name, c.Kind, c.Unit}] = c
	}

	for _, c := range r.Counters {
		was := sumByID[id{c.Name, c.Kind, c.Unit}]
		sameCounters := was != nil && c.Index == was.Index && c.Generation == was.Generation && c.Present() == was.Present()
		if sameCounters && c.Packets == was.Packets && c.Bytes == was.Bytes {
			continue
		}

		ch := SumChange{Reading: r, Sum: c}
		grown := sameCounters && c.Packets >= was.Packets && c.Bytes >= was.Bytes
		if grown && c.Present() && c.Sum.Absent == was.Sum.Absent {
			ch.HasDelta = true
			ch.PacketsDelta = c.Packets - was.Packets
			ch.BytesDelta = c.Bytes - was.Bytes
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
	if p.json {
		return format.JSON(p.out, p.sumChangeJSON(ch))
	}

	c := ch.Sum
	first, second := "-", "-"
	if ch.HasDelta {
		first = "+" + format.Count(ch.PacketsDelta)
		if c.hasSecond() {
			second = "+" + format.Count(ch.BytesDelta)
		}
	}
	at := p.zero.Add(time.Duration(ch.at())).Format("15:04:05.000")
	firstUnit, secondUnit := c.units()
	line := fmt.Sprintf("%s  %s  %s %s (%s)  %s %s (%s)",
		at, format.Printable(c.Name), c.firstCell(), firstUnit, first, c.secondCell(), secondUnit, second)
	if note := c.Note(); note != "" {
		line += "  " + note
	}
	_, err := fmt.Fprintln(p.out, line)
	return err
}

// at returns the sample time of the oldest value, or the time of the look if no counter has a value.
func (ch SumChange) at() int64 { return cmp.Or(ch.Sum.SampledAt, ch.Reading.Now) }

func (p ChangePrinter) sumChangeJSON(ch SumChange) SumChangeJSON {
	j := SumChangeJSON{
		Schema:   1,
		Time:     wallClock(p.zero, ch.at()),
		Snapshot: toSnapshotJSON(ch.Reading.Snapshot),
		sumJSON:  ch.Sum.sumJSON(ch.Reading),
	}
	if !ch.HasDelta {
		return j
	}

	first, second := &ch.PacketsDelta, &ch.BytesDelta
	if !ch.Sum.hasSecond() {
		second = nil
	}
	if ch.Sum.Completion() {
		j.CompletionsDelta, j.ErrorsDelta = first, second
	} else {
		j.PacketsDelta, j.BytesDelta = first, second
	}
	return j
}
