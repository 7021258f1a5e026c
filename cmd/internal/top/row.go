package top

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/flowtally/flowtally/cmd/internal/view"
	"github.com/flowtally/flowtally/shm"
)

// row is a row of the table: a counter, or the sum of a group. As in view.Counter, the fields that a look touches for
// every row are together.
type row struct {
	look   uint64    // the number of the last look that read the row; 0: none
	value  shm.Value // the newest sample
	before shm.Value // the base of the rate; without a sample time there is no rate
	trend  *trend    // nil: no record in the history yet
	group  *group    // nil: the row is a counter
	apart  int64     // time between the oldest and the newest value of a group, in ns

	removed bool
	stale   bool // according to the entry; Counter.Stale is also true if the writer is dead

	view.Counter

	text   string      // what a filter searches, in lower case
	device *shm.Device // where a device writes the value; nil: nowhere, or unknown
	sought bool        // device is known, until the entry changes
	entry  shm.Entry   // only of a member of a group
}

func (r *row) handle() shm.Handle { return shm.Handle{Index: r.Index, Generation: r.Generation} }

// describe updates the row from a new or changed entry.
func (r *row) describe(e shm.Entry) {
	fromDevice := r.FromDevice
	r.Counter = view.NewCounter(e)
	r.stale = r.Counter.Stale
	r.device = nil
	r.sought = false
	r.Show(r.value, fromDevice)

	var b strings.Builder
	b.WriteString(e.Name + "\n" + e.Source)
	for _, key := range slices.Sorted(maps.Keys(e.Labels)) {
		b.WriteString("\n" + key + "=" + e.Labels[key])
	}
	r.text = strings.ToLower(b.String())
}

// sample updates the value. The base of the rate is the previous sample if the look before has read this row, too
// (consecutive). Otherwise the history may have one.
func (r *row) sample(v shm.Value, words, consecutive bool) {
	switch {
	case !consecutive:
		r.before = r.trend.before(v)
	case v.SampledAt > r.value.SampledAt:
		r.before = r.value
		if r.before.SampledAt == 0 {
			r.before = r.trend.before(v)
		}
	}
	r.value = v
	r.Show(v, words)
}

// settle computes the rate, and what else depends on the time and on the writer.
func (r *row) settle(now int64, live bool, interval int64) {
	r.Stale = r.stale || r.Present() && !live
	r.HasRate = false
	r.PacketsPerSec = 0
	r.BytesPerSec = 0

	v, b := r.value, r.before
	span := v.SampledAt - b.SampledAt
	if b.SampledAt == 0 || span <= 0 || v.Packets < b.Packets || v.Bytes < b.Bytes {
		return
	}
	fresh := now-v.SampledAt <= 2*max(span, interval) // the last rate says nothing about now without new samples
	if r.Stale || !fresh || ratesApart*r.apart > span {
		return
	}

	seconds := float64(span) / 1e9
	r.HasRate = true
	r.PacketsPerSec = float64(v.Packets-b.Packets) / seconds
	r.BytesPerSec = float64(v.Bytes-b.Bytes) / seconds
}

func byName(a, b *row) int {
	return cmp.Or(strings.Compare(a.Name, b.Name), cmp.Compare(a.Index, b.Index))
}
