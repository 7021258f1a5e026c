package cli

import (
	"strings"
	"time"

	"github.com/flowtally/flowtally/shm"
)

// reading is one look at a mirror.
type reading struct {
	Path     string
	Now      int64     // when, in ns of CLOCK_MONOTONIC
	Zero     time.Time // the wall clock at 0 of CLOCK_MONOTONIC
	Writer   writerView
	Counters []counterView // in order of name
}

// writerView is what the mirror shows of its writer.
type writerView struct {
	State string // boot, run, halt, fail; stale or dead where the heartbeat has stopped
	Age   int64  // ns since the last heartbeat
}

// live says that the writer is there and publishing.
func (w writerView) live() bool { return w.State == "run" || w.State == "boot" }

func (w writerView) String() string {
	age := humanAge(time.Duration(w.Age)) + " ago"
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

// counterView is one counter as it is shown.
type counterView struct {
	Index, Generation          uint32
	Name, Kind, Unit           string
	Labels                     map[string]string
	Source, ByteBasis          string
	Valid, Stale, Ambiguous    bool
	Gone                       bool   // removed while it was read
	Words                      bool   // read where a device writes it; SampledAt is when
	Unread                     bool   // a device writes it, and where cannot be read: it is what the poller published
	Packets, Bytes             uint64 // or completions and errors
	SampledAt                  int64  // ns of CLOCK_MONOTONIC; 0: never, Packets and Bytes mean nothing
	Discontinuities            uint64
	PacketsPerSec, BytesPerSec float64
	HasRate                    bool
}

// completion says that the two values are completions and those of them in error, of
// a queue pair's operations.
func (c counterView) completion() bool { return c.Kind == shm.KindCompletion }

// byKind parts the counters of flows, and of what else counts packets and bytes, from
// those of completions; each keeps its order.
func byKind(counters []counterView) (flows, completions []counterView) {
	for _, c := range counters {
		if c.completion() {
			completions = append(completions, c)
		} else {
			flows = append(flows, c)
		}
	}
	return flows, completions
}

// show makes v the value.
func (c *counterView) show(v shm.Value, words bool) {
	c.Packets, c.Bytes, c.SampledAt, c.Words = v.Packets, v.Bytes, v.SampledAt, words
}

// age is how old the value is in a reading. Words are of the moment in which they were
// read, as long as the writer lives, in whose process the device was opened; then they may
// have stood still since its last sign of life.
func (c counterView) age(r *reading) int64 {
	switch {
	case c.Words && r.Writer.live():
		return 0
	case c.Words:
		return r.Writer.Age
	}
	return max(0, r.Now-c.SampledAt)
}

// present says that there is a value: absent is not zero.
func (c counterView) present() bool { return c.SampledAt != 0 }

// note names what a person must know before trusting the value.
func (c counterView) note() string {
	var notes []string
	for _, n := range []struct {
		is   bool
		text string
	}{
		{c.Gone, "removed"},
		{!c.present(), "never sampled"},
		{c.present() && !c.Valid, "invalid"},
		{c.Stale, "stale"},
		{c.Ambiguous, "ambiguous"},
		{c.Unread, "published by the poller: the device's words cannot be read"},
		{c.Discontinuities > 0, plural(c.Discontinuities, "discontinuity", "discontinuities")},
	} {
		if n.is {
			notes = append(notes, n.text)
		}
	}
	return strings.Join(notes, ", ")
}

func plural(n uint64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return humanCount(n) + " " + many
}

// cells of one counter; "-" stands where there is no value.
func (c counterView) firstCell() string  { return c.cell(humanCount(c.Packets)) }
func (c counterView) secondCell() string { return c.cell(humanCount(c.Bytes)) }
func (c counterView) ageCell(r *reading) string {
	if c.Words && r.Writer.live() {
		return "now"
	}
	return c.cell(humanAge(time.Duration(c.age(r))))
}

// sourceCell says of words who writes them: a device, and nobody after it.
func (c counterView) sourceCell() string {
	if c.Words {
		return orDash(c.Source) + ", its words"
	}
	return orDash(c.Source)
}

func (c counterView) cell(s string) string {
	if !c.present() {
		return "-"
	}
	return s
}

func (c counterView) rateCell(perSecond float64) string {
	if !c.HasRate {
		return "-"
	}
	return humanRate(perSecond)
}

// rates fills the rates of cur in from the look before it: what was counted
// between two samples, over the time between the two samples. There is none
// where no new sample came, and none across a change of the counter.
func rates(before, cur *reading) {
	if before == nil {
		return
	}
	type id struct{ index, generation uint32 }
	old := make(map[id]*counterView, len(before.Counters))
	for i := range before.Counters {
		c := &before.Counters[i]
		old[id{c.Index, c.Generation}] = c
	}
	for i := range cur.Counters {
		c := &cur.Counters[i]
		o := old[id{c.Index, c.Generation}]
		if o == nil || !o.present() || !c.present() || c.Name != o.Name ||
			c.SampledAt <= o.SampledAt || c.Packets < o.Packets || c.Bytes < o.Bytes {
			continue
		}
		seconds := float64(c.SampledAt-o.SampledAt) / float64(time.Second)
		c.PacketsPerSec = float64(c.Packets-o.Packets) / seconds
		c.BytesPerSec = float64(c.Bytes-o.Bytes) / seconds
		c.HasRate = true
	}
}
