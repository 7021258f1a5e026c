package top

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/flowtally/flowtally/cmd/internal/view"
	"github.com/flowtally/flowtally/shm"
)

// row is a row of the table: a counter, or the sum of a group.
type row struct {
	view.Counter
	stale bool   // by the entry; Counter.Stale holds the writer's state too
	text  string // that a filter is compared with

	value  shm.Value // the newest sample
	before shm.Value // the sample that the rate is counted from; absent: there is no rate
	look   uint64    // number of the look that read it last; 0: none
	trend  *trend    // nil: no record of the history yet

	device *shm.Device // the words that a device writes for it; nil: there are none, or they were not sought
	sought bool        // device was sought since the entry changed

	removed bool
	entry   shm.Entry // of a counter that is added up
	group   *group    // nil: the row is a counter
	apart   int64     // by which the values of a group are apart in time, in ns
}

func (r *row) handle() shm.Handle { return shm.Handle{Index: r.Index, Generation: r.Generation} }

// describe takes over an entry.
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

// sample takes over a value. If the look before has read the row too (consecutive), its value is the sample before;
// else the history has one.
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

// settle computes the fields that depend on the time and on the writer.
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
	fresh := now-v.SampledAt <= 2*max(span, interval) // without a new sample there is no rate
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
