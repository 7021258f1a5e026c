package view

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/flowtally/flowtally/cmd/internal/format"
	"github.com/flowtally/flowtally/cmd/internal/selection"
	"github.com/flowtally/flowtally/shm"
)

// Reading is one look at a mirror.
type Reading struct {
	Path     string
	Now      int64     // when, in ns of CLOCK_MONOTONIC
	Zero     time.Time // the wall clock at 0 of CLOCK_MONOTONIC
	Writer   Writer
	Counters []Counter  // in order of name; or sums
	Snapshot *shm.Label // of the values of sums; nil: Counters are no sums
}

// Writer is the mirror's information about its writer.
type Writer struct {
	State string // boot, run, halt, fail; stale or dead where the heartbeat has stopped
	Age   int64  // ns since the last heartbeat
}

// Live reports whether the writer is publishing.
func (w Writer) Live() bool { return w.State == "run" || w.State == "boot" }

func (w Writer) String() string {
	age := format.Age(time.Duration(w.Age)) + " ago"
	switch w.State {
	case "halt":
		return "ended in good order, " + age
	case "fail":
		return "gave up, " + age
	case "stale", "dead":
		return w.State + ", last heartbeat " + age
	}
	return w.State + ", heartbeat " + age
}

// Counter is one counter as it is shown.
type Counter struct {
	Index, Generation          uint32
	Name, Kind, Unit           string
	Labels                     map[string]string
	Direction                  string         // ingress or egress; "": not a flow
	Sum                        *selection.Sum // nil: not a sum
	Source, ByteBasis          string
	Valid, Stale, Ambiguous    bool
	Gone                       bool   // removed while it was read
	FromDevice                 bool   // read where a device writes it; SampledAt is when
	Unread                     bool   // a device writes it to memory that cannot be read: this is the published value
	Packets, Bytes             uint64 // or completions and errors
	SampledAt                  int64  // ns of CLOCK_MONOTONIC; 0: never, Packets and Bytes mean nothing
	Discontinuities            uint64
	PacketsPerSec, BytesPerSec float64
	HasRate                    bool
}

// Completion reports whether the two values are completions and completions in error of a queue
// pair's operations.
func (c Counter) Completion() bool { return c.Kind == shm.KindCompletion }

// byKind separates counters of packets and bytes from counters of completions; each part keeps its
// order.
func byKind(counters []Counter) (flows, completions []Counter) {
	for _, c := range counters {
		if c.Completion() {
			completions = append(completions, c)
		} else {
			flows = append(flows, c)
		}
	}
	return flows, completions
}

// Show sets the value, and whether a device wrote it.
func (c *Counter) Show(v shm.Value, words bool) {
	c.Packets, c.Bytes, c.SampledAt, c.FromDevice = v.Packets, v.Bytes, v.SampledAt, words
}

// age returns the age of the value in a reading. A value from a device is current while the writer lives, whose
// process has opened the device. After that it may not have changed since the writer's last heartbeat.
func (c Counter) age(r *Reading) int64 {
	switch {
	case c.FromDevice && r.Writer.Live():
		return 0
	case c.FromDevice:
		return r.Writer.Age
	}
	return max(0, r.Now-c.SampledAt)
}

// Present reports whether there is a value: absent is not zero.
func (c Counter) Present() bool { return c.SampledAt != 0 }

// Note names the reservations about the value.
func (c Counter) Note() string {
	var notes []string
	if c.Sum != nil {
		notes = c.sumNotes()
	}
	one := c.Sum == nil
	for _, n := range []struct {
		is   bool
		text string
	}{
		{c.Gone, "removed"},
		{one && !c.Present(), "never sampled"},
		{one && c.Present() && !c.Valid, "invalid"},
		{one && c.Stale, "stale"},
		{one && c.Ambiguous, "ambiguous"},
		{c.Unread, "published by the poller: the device's words cannot be read"},
		{c.Discontinuities > 0, format.Plural(c.Discontinuities, "discontinuity", "discontinuities")},
	} {
		if n.is {
			notes = append(notes, n.text)
		}
	}
	return strings.Join(notes, ", ")
}

// cells of one counter; "-" stands where there is no value.
func (c Counter) firstCell() string { return c.cell(format.Count(c.Packets)) }
func (c Counter) secondCell() string {
	if !c.hasSecond() {
		return "-"
	}
	return format.Count(c.Bytes)
}
func (c Counter) AgeCell(r *Reading) string {
	if c.FromDevice && r.Writer.Live() {
		return "now"
	}
	return c.cell(format.Age(time.Duration(c.age(r))))
}

// SourceCell returns the source, and adds to a device's source that the value comes from its words.
func (c Counter) SourceCell() string {
	if c.Sum != nil {
		return format.Plural(uint64(c.Sum.Members), "counter", "counters")
	}
	if c.FromDevice {
		return format.OrDash(c.Source) + ", its words"
	}
	return format.OrDash(c.Source)
}

func (c Counter) cell(s string) string {
	if !c.Present() {
		return "-"
	}
	return s
}

func (c Counter) rateCell(perSecond float64) string {
	if !c.HasRate {
		return "-"
	}
	return format.Rate(perSecond)
}

// Rates fills in the rates of cur from the reading before it: the count between two samples,
// divided by the time between the two samples. Without a new sample, and across a change of the
// counter, there is no rate.
func Rates(before, cur *Reading) {
	if before == nil {
		return
	}
	type id struct{ index, generation uint32 }
	old := make(map[id]*Counter, len(before.Counters))
	for i := range before.Counters {
		c := &before.Counters[i]
		old[id{c.Index, c.Generation}] = c
	}
	for i := range cur.Counters {
		c := &cur.Counters[i]
		o := old[id{c.Index, c.Generation}]
		if o == nil || !o.Present() || !c.Present() || c.Name != o.Name ||
			c.SampledAt <= o.SampledAt || c.Packets < o.Packets || c.Bytes < o.Bytes || !c.hasInterval(o) {
			continue
		}
		c.setRate(c.Packets-o.Packets, c.Bytes-o.Bytes, c.SampledAt-o.SampledAt)
	}
}

// setRate sets the rate of packets and bytes in the time between two samples, in ns; no rate if the time is not above 0.
func (c *Counter) setRate(packets, bytes uint64, between int64) {
	if between <= 0 {
		return
	}
	seconds := float64(between) / float64(time.Second)
	c.PacketsPerSec, c.BytesPerSec, c.HasRate = float64(packets)/seconds, float64(bytes)/seconds, true
}

// NewCounter returns the counter of an entry of the catalogue, without its value.
func NewCounter(e shm.Entry) Counter {
	direction, isFlow := selection.DirectionOf(e)
	c := Counter{
		Index: e.Handle.Index, Generation: e.Handle.Generation,
		Name: e.Name, Kind: e.Kind, Unit: cmp.Or(e.Unit, "packets"), Labels: e.Labels, Source: e.Source, ByteBasis: e.ByteBasis,
		Valid: e.Valid, Stale: e.Stale, Ambiguous: e.Ambiguous,
		Discontinuities: e.Continuity.Discontinuities,
	}
	if isFlow {
		c.Direction = direction.String()
	}
	return c
}

// deadAfter is the number of missed heartbeats after which a writer is dead. From the second on it is stale.
const deadAfter = 10

func NewWriter(s shm.Status) Writer {
	state := s.State.String()
	if (s.State == shm.Boot || s.State == shm.Run) && !s.Alive {
		state = "stale"
		if s.Age > deadAfter*s.HeartbeatPeriod {
			state = "dead"
		}
	}
	return Writer{State: state, Age: s.Age.Nanoseconds()}
}

// Again returns the same values as they stand now, without rates.
func (r *Reading) Again(w Writer) *Reading {
	now := &Reading{Path: r.Path, Now: shm.Now(), Zero: r.Zero, Writer: w, Counters: slices.Clone(r.Counters)}
	for i := range now.Counters {
		c := &now.Counters[i]
		c.HasRate = false
		c.Stale = c.Stale || c.Present() && !w.Live()
	}
	return now
}
