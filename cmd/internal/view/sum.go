package view

import (
	"fmt"
	"strings"

	"github.com/flowtally/flowtally/cmd/internal/selection"
	"github.com/flowtally/flowtally/shm"
)

// NewSum returns a sum in the form of a counter. Its name has the labels of its group, and its sample time is that of the
// oldest value. The identity of the counters serves as the handle, so a sum of other counters is a new counter.
func NewSum(s selection.Sum) Counter {
	c := Counter{
		Index:           uint32(s.Identity),
		Generation:      uint32(s.Identity >> 32),
		Name:            s.Group.String(),
		Kind:            s.Kind,
		Unit:            s.Unit,
		ByteBasis:       strings.Join(s.Bases, ","),
		Sum:             &s,
		Valid:           s.Exact(),
		Stale:           s.Stale > 0,
		Ambiguous:       s.Ambiguous > 0,
		Discontinuities: s.Discontinuities,
	}
	if s.HasValue() {
		c.Packets = s.Packets
		c.Bytes = s.Bytes
		c.SampledAt = s.Oldest
	}
	return c
}

// ratesApart limits the error of a sum's rate. The values of a sum are sampled at different times; if these are further
// apart than 1/ratesApart of the time between two sums, the sum has no rate.
const ratesApart = 100

// hasInterval reports whether all values of two samples are about the same time apart. For single counters this is
// trivial.
func (c *Counter) hasInterval(before *Counter) bool {
	if c.Sum == nil || before.Sum == nil {
		return c.Sum == before.Sum
	}
	most := (c.SampledAt - before.SampledAt) / ratesApart
	return c.Sum.Newest-c.Sum.Oldest <= most && before.Sum.Newest-before.Sum.Oldest <= most
}

// hasSecond reports whether there is a second value, bytes or errors. A sum has no bytes if its counters count them on
// different bases.
func (c *Counter) hasSecond() bool { return c.Present() && (c.Sum == nil || c.Sum.HasBytes()) }

// secondRateCell returns the table cell for the rate of bytes or errors.
func (c *Counter) secondRateCell() string {
	if !c.hasSecond() {
		return "-"
	}
	return c.rateCell(c.BytesPerSec)
}

// sumNotes lists what to know before trusting a sum.
func (c *Counter) sumNotes() (notes []string) {
	s := c.Sum
	addSome := func(n int, text string) {
		if n > 0 {
			notes = append(notes, fmt.Sprintf("%d of %d %s", n, s.Members, text))
		}
	}
	addSome(s.Absent, "never sampled")
	addSome(s.Invalid, "invalid")
	addSome(s.Stale, "stale")
	addSome(s.Ambiguous, "ambiguous")

	if c.Stale && s.Stale == 0 { // the caller has found the writer dead
		notes = append(notes, "stale")
	}
	if s.TooLarge {
		notes = append(notes, "above 2^64-1")
	}
	if len(s.Bases) > 1 {
		notes = append(notes, "bytes differ in their basis")
	}
	return notes
}

// sumJSON is one sum in the JSON of get --sum-by.
type sumJSON struct {
	Labels   map[string]*string `json:"labels"` // of --sum-by; null: the counters have no such label
	Kind     string             `json:"kind"`
	Unit     string             `json:"unit"`
	Counters int                `json:"counters"` // that were added up
	Absent   int                `json:"absent"`   // of them, without a value: the sum lacks them

	Packets     *uint64 `json:"packets"`
	Bytes       *uint64 `json:"bytes"` // null, too, if the counters differ in their byte basis
	Completions *uint64 `json:"completions"`
	Errors      *uint64 `json:"errors"`
	rateJSON

	AgeNS     *int64   `json:"age_ns"`  // of the oldest value
	SkewNS    *int64   `json:"skew_ns"` // between the oldest and the newest value
	SampledAt *string  `json:"sampled_at"`
	ByteBases []string `json:"byte_bases"`

	Valid           bool   `json:"valid"` // every counter has a valid value
	Stale           bool   `json:"stale"` // of a counter at least, as ambiguous
	Ambiguous       bool   `json:"ambiguous"`
	Discontinuities uint64 `json:"discontinuities"` // of all counters together
}

// snapshotJSON is the snapshot that the values of sums are of.
type snapshotJSON struct {
	Cycle    *uint64 `json:"cycle"` // the poll cycle; null: the values are of several
	MinCycle uint64  `json:"min_cycle"`
	MaxCycle uint64  `json:"max_cycle"`
	SkewNS   int64   `json:"skew_ns"` // between the oldest and the newest value
}

func toSnapshotJSON(l *shm.Label) *snapshotJSON {
	if l == nil {
		return nil
	}
	s := &snapshotJSON{MinCycle: l.MinCycle, MaxCycle: l.MaxCycle, SkewNS: l.SkewNanos}
	if l.SameCycle {
		s.Cycle = &l.Cycle
	}
	return s
}

// labelsOf returns the labels of a group. A label is nil if the counters do not have it.
func labelsOf(g selection.Group) map[string]*string {
	labels := make(map[string]*string)
	for _, l := range g.Labels() {
		labels[l.Key] = nil
		if l.Has {
			labels[l.Key] = &l.Value
		}
	}
	return labels
}

func (c *Counter) sumJSON(r *Reading) sumJSON {
	s := c.Sum
	j := sumJSON{
		Labels:          labelsOf(s.Group),
		Kind:            c.Kind,
		Unit:            c.Unit,
		Counters:        s.Members,
		Absent:          s.Absent,
		rateJSON:        c.rates(),
		ByteBases:       append([]string{}, s.Bases...),
		Valid:           c.Valid,
		Stale:           c.Stale,
		Ambiguous:       c.Ambiguous,
		Discontinuities: c.Discontinuities,
	}
	if !c.Present() {
		return j
	}

	age := c.age(r)
	skew := s.Newest - s.Oldest
	at := wallClock(r.Zero, c.SampledAt)
	j.AgeNS = &age
	j.SkewNS = &skew
	j.SampledAt = &at

	first, second := &c.Packets, &c.Bytes
	if !c.hasSecond() {
		second = nil
	}
	if c.Completion() {
		j.Completions, j.Errors = first, second
	} else {
		j.Packets, j.Bytes = first, second
	}
	return j
}
