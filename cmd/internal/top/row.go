package top

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/flowtally/flowtally/cmd/internal/view"
	"github.com/flowtally/flowtally/shm"
)

// row is a counter of the table.
type row struct {
	view.Counter
	stale   bool        // by the entry; Counter.Stale holds the writer's state too
	text    string      // that a filter is compared with
	before  shm.Value   // the sample that the rate is counted from; absent: there is no rate
	value   shm.Value   // the newest sample
	look    uint64      // number of the look that read it last
	device  *shm.Device // the words that a device writes for it; nil: they are not there, or were not looked for
	sought  bool        // device was looked for since the entry changed
	removed bool
	entry   shm.Entry // of a counter that is added up
	group   *group    // nil: the row is a counter
	apart   int64     // by which the values of a group are apart in time, in ns
	trend   *trend    // nil: no record of the history yet
}

func (r *row) handle() shm.Handle { return shm.Handle{Index: r.Index, Generation: r.Generation} }

// describe takes over an entry.
func (r *row) describe(e shm.Entry) {
	value := r.Counter
	r.Counter = view.NewCounter(e)
	r.stale = r.Counter.Stale
	r.device, r.sought = nil, false
	r.Show(r.value, value.FromDevice)
	var b strings.Builder
	b.WriteString(e.Name + "\n" + e.Source)
	for _, key := range slices.Sorted(maps.Keys(e.Labels)) {
		b.WriteString("\n" + key + "=" + e.Labels[key])
	}
	r.text = strings.ToLower(b.String())
}

// sample takes over a value. consecutive: the look before read the row too, so that its value is the sample
// before. Else the history has one.
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

// settle computes the members that depend on the time and the writer. patience is the age up to which a
// sample is new: without a new sample there is no rate.
func (r *row) settle(now int64, live bool, interval int64) {
	r.Stale = r.stale || r.Present() && !live
	v, b := r.value, r.before
	span := v.SampledAt - b.SampledAt
	r.HasRate = b.SampledAt != 0 && span > 0 && ratesApart*r.apart <= span && v.Packets >= b.Packets && v.Bytes >= b.Bytes &&
		!r.Stale && now-v.SampledAt <= 2*max(span, interval)
	r.PacketsPerSec, r.BytesPerSec = 0, 0
	if r.HasRate {
		seconds := float64(span) / 1e9
		r.PacketsPerSec = float64(v.Packets-b.Packets) / seconds
		r.BytesPerSec = float64(v.Bytes-b.Bytes) / seconds
	}
}

func byName(a, b *row) int {
	return cmp.Or(strings.Compare(a.Name, b.Name), cmp.Compare(a.Index, b.Index))
}
