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
	Now      int64     // the time of the look, in ns of CLOCK_MONOTONIC
	Zero     time.Time // the wall clock at 0 of CLOCK_MONOTONIC
	Writer   Writer
	Counters []Counter  // in order of name, or sums
	Snapshot *shm.Label // of the values of sums; nil if Counters are not sums
}

// Again returns the values of r once more, for a look at which the mirror was unreadable. They have a new age, and no
// rates.
func (r *Reading) Again(w Writer) *Reading {
	now := &Reading{
		Path:     r.Path,
		Now:      shm.Now(),
		Zero:     r.Zero,
		Writer:   w,
		Counters: slices.Clone(r.Counters),
	}
	for i := range now.Counters {
		c := &now.Counters[i]
		c.HasRate = false
		c.Stale = c.Stale || c.Present() && !w.Live()
	}
	return now
}

// Writer is the state of a mirror's writer.
type Writer struct {
	State string // boot, run, halt or fail; stale or dead if the heartbeat has stopped
	Age   int64  // since the last heartbeat, in ns
}

// deadAfter is how many missed heartbeats make a writer dead. From the second one on, it is stale.
const deadAfter = 10

// NewWriter returns the writer of a mirror with this status.
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

// Counter is one counter or one sum, with its value.
type Counter struct {
	// The fields that top touches for each of thousands of counters come first: it waits for memory more than it computes.

	Index      uint32
	Generation uint32
	Kind       string

	Valid         bool
	Stale         bool
	Ambiguous     bool
	Gone          bool // the counter was removed while it was read
	FromDevice    bool // read from the memory to which a device writes; SampledAt is the time of reading
	Unread        bool // a device counts, but its memory is not readable: this is the published value
	HasRate       bool
	PacketsPerSec float64
	BytesPerSec   float64

	Packets   uint64 // or completions
	Bytes     uint64 // or errors
	SampledAt int64  // in ns of CLOCK_MONOTONIC; 0: never sampled, so Packets and Bytes mean nothing

	// The rest is for those that are shown.

	Discontinuities uint64
	Name            string
	Unit            string
	Labels          map[string]string
	Direction       string         // ingress or egress; "": not a flow
	Sum             *selection.Sum // nil: not a sum
	Source          string
	ByteBasis       string
}

// NewCounter returns the counter of a catalogue's entry, without a value.
func NewCounter(e shm.Entry) Counter {
	c := Counter{
		Index:           e.Handle.Index,
		Generation:      e.Handle.Generation,
		Name:            e.Name,
		Kind:            e.Kind,
		Unit:            cmp.Or(e.Unit, "packets"),
		Labels:          e.Labels,
		Source:          e.Source,
		ByteBasis:       e.ByteBasis,
		Valid:           e.Valid,
		Stale:           e.Stale,
		Ambiguous:       e.Ambiguous,
		Discontinuities: e.Continuity.Discontinuities,
	}
	if direction, isFlow := selection.DirectionOf(e); isFlow {
		c.Direction = direction.String()
	}
	return c
}

// Show sets the value. words says whether it was read from a device's words.
func (c *Counter) Show(v shm.Value, words bool) {
	c.Packets = v.Packets
	c.Bytes = v.Bytes
	c.SampledAt = v.SampledAt
	c.FromDevice = words
}

// Present reports whether there is a value. Absent is not zero.
func (c *Counter) Present() bool { return c.SampledAt != 0 }

// Completion reports whether the two values are completions and errors of a queue pair, rather than packets and bytes.
func (c *Counter) Completion() bool { return c.Kind == shm.KindCompletion }

// units names the two values.
func (c *Counter) units() (first, second string) {
	if c.Completion() {
		return "completions", "errors"
	}
	return "packets", "bytes"
}

// age returns the age of the value. A device's value is current while the writer lives, because the writer's process keeps
// the device open. After its death, the value may be as old as the last heartbeat.
func (c *Counter) age(r *Reading) int64 {
	switch {
	case c.FromDevice && r.Writer.Live():
		return 0
	case c.FromDevice:
		return r.Writer.Age
	}
	return max(0, r.Now-c.SampledAt)
}

// Note lists what to know before trusting the value.
func (c *Counter) Note() string {
	var notes []string
	add := func(holds bool, text string) {
		if holds {
			notes = append(notes, text)
		}
	}

	add(c.Gone, "removed")
	if c.Sum != nil {
		notes = append(c.sumNotes(), notes...)
	} else {
		add(!c.Present(), "never sampled")
		add(c.Present() && !c.Valid, "invalid")
		add(c.Stale, "stale")
		add(c.Ambiguous, "ambiguous")
	}
	add(c.Unread, "published by the poller: the device's words cannot be read")
	add(c.Discontinuities > 0, format.Plural(c.Discontinuities, "discontinuity", "discontinuities"))
	return strings.Join(notes, ", ")
}

// byKind separates counters of packets and bytes from counters of completions. Both keep their order.
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

// firstCell returns the table cell for packets or completions.
func (c *Counter) firstCell() string { return c.cell(format.Count(c.Packets)) }

// secondCell returns the table cell for bytes or errors.
func (c *Counter) secondCell() string {
	if !c.hasSecond() {
		return "-"
	}
	return format.Count(c.Bytes)
}

// AgeCell returns the table cell for the age of the value.
func (c *Counter) AgeCell(r *Reading) string {
	if c.FromDevice && r.Writer.Live() {
		return "now"
	}
	return c.cell(format.Age(time.Duration(c.age(r))))
}

// cell returns s, or "-" if there is no value.
func (c *Counter) cell(s string) string {
	if !c.Present() {
		return "-"
	}
	return s
}

func (c *Counter) rateCell(perSecond float64) string {
	if !c.HasRate {
		return "-"
	}
	return format.Rate(perSecond)
}

// SourceCell returns the table cell for the source, with a remark if the value comes from a device's words. For a sum it
// has the number of counters.
func (c *Counter) SourceCell() string {
	if c.Sum != nil {
		return format.Plural(uint64(c.Sum.Members), "counter", "counters")
	}
	source := format.OrDash(c.Source)
	if c.FromDevice {
		source += ", its words"
	}
	return source
}

// Rates fills in the rates of cur: the count between two samples, divided by the time between them. A counter has no rate
// if it has no new sample, or if it is not the same counter as in before.
func Rates(before, cur *Reading) {
	if before == nil {
		return
	}
	type id struct{ index, generation uint32 }
	counterByID := make(map[id]*Counter, len(before.Counters))
	for i := range before.Counters {
		c := &before.Counters[i]
		counterByID[id{c.Index, c.Generation}] = c
	}

	for i := range cur.Counters {
		c := &cur.Counters[i]
		was := counterByID[id{c.Index, c.Generation}]
		if was == nil || c.Name != was.Name || !was.Present() || !c.Present() {
			continue
		}
		if c.SampledAt <= was.SampledAt || c.Packets < was.Packets || c.Bytes < was.Bytes || !c.hasInterval(was) {
			continue
		}
		c.setRate(c.Packets-was.Packets, c.Bytes-was.Bytes, c.SampledAt-was.SampledAt)
	}
}

// setRate sets the rate from the packets and bytes counted in an interval, in ns. It sets none for an empty interval.
func (c *Counter) setRate(packets, bytes uint64, interval int64) {
	if interval <= 0 {
		return
	}
	seconds := float64(interval) / float64(time.Second)
	c.PacketsPerSec = float64(packets) / seconds
	c.BytesPerSec = float64(bytes) / seconds
	c.HasRate = true
}
