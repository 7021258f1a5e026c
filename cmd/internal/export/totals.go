package export

import (
	"cmp"
	"fmt"
	"log/slog"
	"maps"
	"math/bits"
	"slices"

	"github.com/flowtally/flowtally/cmd/internal/selection"
	"github.com/flowtally/flowtally/shm"
)

// totals adds up the counters of a catalogue by group. Prometheus takes a falling total for a restart, so the total of a
// group must never fall while the group has a counter. We therefore add what each counter has counted since the last
// look, and keep it in the total even after the counter was removed.
type totals struct {
	group func(shm.Entry) selection.Group // nil: no groups, each counter has its own series
	log   *slog.Logger

	epoch      uint64             // the epoch of the catalogue for which the fields below were made
	sums       []row              // one for each group
	groupByRow []int              // for each row of the catalogue, the index of its group in sums
	lastByName map[string]counted // by name of a counter
}

// counted is the last reading of a counter.
type counted struct {
	value           shm.Value
	discontinuities uint64
	handle          shm.Handle
	file            *shm.Reader
}

// sameCounter reports whether c was read from r. Within one file a handle identifies a counter, because a reused slot
// gets a new handle. In a new file all handles are new, but each name goes on with its total.
func (c counted) sameCounter(r *row, file *shm.Reader) bool {
	return c.file != file || c.handle == r.entry.Handle
}

// goesOn reports whether r continues the total in c, rather than having begun again.
func (c counted) goesOn(r *row, file *shm.Reader) bool {
	return c.sameCounter(r, file) && r.value.Packets >= c.value.Packets && r.value.Bytes >= c.value.Bytes
}

// series returns one row for each series: rows itself, or the sums of the groups. The next call overwrites the result.
func (t *totals) series(rows []row, epoch uint64, file *shm.Reader) []row {
	if t.group == nil {
		return rows
	}
	if t.epoch != epoch {
		t.regroup(rows)
		t.epoch = epoch
	}

	for i := range t.sums {
		t.sums[i].gone = true
	}
	for i := range rows {
		if r := &rows[i]; !r.gone {
			t.add(&t.sums[t.groupByRow[i]], r, file)
		}
	}
	return t.sums
}

// add adds to sum what r has counted since the last look.
func (t *totals) add(sum, r *row, file *shm.Reader) {
	was := t.lastByName[r.entry.Name] // zero for a new counter
	now := counted{r.value, r.entry.Continuity.Discontinuities, r.entry.Handle, file}
	absent := r.value.SampledAt == 0
	switch {
	case absent && was.sameCounter(r, file): // no value in this cycle
		now.value = was.value
	case !absent && !was.goesOn(r, file):
		was = counted{}
	}
	t.lastByName[r.entry.Name] = now

	sum.gone = false
	if !absent {
		t.grow(sum, now.value.Packets-was.value.Packets, now.value.Bytes-was.value.Bytes)
		sum.value.SampledAt = max(sum.value.SampledAt, r.value.SampledAt)
		sum.unlike = sum.unlike || sum.entry.ByteBasis != r.entry.ByteBasis
	}
	if n := now.discontinuities; n >= was.discontinuities {
		sum.entry.Continuity.Discontinuities += n - was.discontinuities
	}
}

// grow adds packets and bytes to sum. A sum above 2^64-1 loses its series until its group is gone. flowtally get --sum-by
// shows no value for such a sum either.
func (t *totals) grow(sum *row, packets, bytes uint64) {
	var carryPackets, carryBytes uint64
	sum.value.Packets, carryPackets = bits.Add64(sum.value.Packets, packets, 0)
	sum.value.Bytes, carryBytes = bits.Add64(sum.value.Bytes, bytes, 0)
	if carryPackets|carryBytes == 0 || sum.tooLarge {
		return
	}
	sum.tooLarge = true
	t.log.Warn("a sum is above 2^64-1: it is exported no more", "sum", sum.entry.Name)
}

// regroup finds the group of each row of a new catalogue. A group keeps its total until its last counter is removed.
func (t *totals) regroup(rows []row) {
	before := make(map[string]row, len(t.sums))
	for _, sum := range t.sums {
		before[sum.entry.Name] = sum
	}

	sumByName := make(map[string]row)
	names := make([]string, len(rows))          // of the group of each row
	last := make(map[string]counted, len(rows)) // lastByName without removed counters
	for i := range rows {
		e := rows[i].entry
		if was, known := t.lastByName[e.Name]; known {
			last[e.Name] = was
		}

		labels := labelsOfGroup(t.group(e))
		first, _ := kindsOf(e)
		name := fmt.Sprintf("%d %q", first, labels) // groups with equal labels share a series
		names[i] = name
		if _, known := sumByName[name]; known {
			continue
		}
		sum, goesOn := before[name]
		if !goesOn {
			sum = row{
				labels: labels,
				entry:  shm.Entry{Name: name, Kind: e.Kind, ByteBasis: e.ByteBasis, AddedAt: e.AddedAt},
			}
		}
		sumByName[name] = sum
	}

	order := slices.Sorted(maps.Keys(sumByName))
	t.sums = make([]row, len(order))
	for i, name := range order {
		t.sums[i] = sumByName[name]
	}
	t.groupByRow = make([]int, len(rows))
	for i, name := range names {
		t.groupByRow[i], _ = slices.BinarySearch(order, name)
	}
	t.lastByName = last
}

// labelsOfGroup returns the labels of a group's series. Prometheus treats an empty label as a missing one, so a key
// without a value adds no label.
func labelsOfGroup(g selection.Group) (labels []label) {
	for _, l := range g.Labels() {
		if l.Value != "" {
			labels = append(labels, label{labelName(l.Key), text(l.Value)})
		}
	}
	if g.Unit != "packets" && g.Unit != "completions" { // the units of the metric families
		labels = append(labels, label{unitLabel, text(g.Unit)})
	}
	slices.SortFunc(labels, func(a, b label) int { return cmp.Compare(a.name, b.name) })
	return labels
}
