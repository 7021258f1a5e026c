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

// totals adds up the counters of a catalogue by group. The total of a group never falls while the group has a counter: it
// grows by the amount that each counter has counted since the last look, and keeps it when the counter is removed.
type totals struct {
	group func(shm.Entry) selection.Group // nil: counters are exported one by one
	log   *slog.Logger

	epoch uint64             // of the catalogue that the rest is of
	sums  []row              // one for each group
	of    []int              // for each row of the catalogue, the index of its group
	last  map[string]counted // by name of a counter
}

// counted is a counter as it was read last.
type counted struct {
	value           shm.Value
	discontinuities uint64
	handle          shm.Handle
	file            *shm.Reader
}

// sameCounter reports whether r is the counter that c was read from: a slot of one file has another handle for the next
// counter, and a mirror that is made anew goes on with the totals of its counters.
func (c counted) sameCounter(r *row, file *shm.Reader) bool {
	return c.file != file || c.handle == r.entry.Handle
}

// goesOn reports whether the total of r is the one that c was read from, and not a total that began again.
func (c counted) goesOn(r *row, file *shm.Reader) bool {
	return c.sameCounter(r, file) && r.value.Packets >= c.value.Packets && r.value.Bytes >= c.value.Bytes
}

// series returns the rows that have series: one for each group, or rows itself. The result is valid until the next call.
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
			t.add(&t.sums[t.of[i]], r, file)
		}
	}
	return t.sums
}

// add adds to sum the amount that r has counted since the last look.
func (t *totals) add(sum, r *row, file *shm.Reader) {
	was := t.last[r.entry.Name] // zero for a counter that is new
	now := counted{r.value, r.entry.Continuity.Discontinuities, r.entry.Handle, file}
	switch absent := r.value.SampledAt == 0; {
	case absent && was.sameCounter(r, file): // no value in this cycle
		now.value = was.value
	case !absent && !was.goesOn(r, file):
		was = counted{}
	}
	t.last[r.entry.Name] = now
	sum.gone = false
	if r.value.SampledAt != 0 {
		t.grow(sum, now.value.Packets-was.value.Packets, now.value.Bytes-was.value.Bytes)
		sum.value.SampledAt = max(sum.value.SampledAt, r.value.SampledAt)
		sum.unlike = sum.unlike || sum.entry.ByteBasis != r.entry.ByteBasis
	}
	if n := now.discontinuities; n >= was.discontinuities {
		sum.entry.Continuity.Discontinuities += n - was.discontinuities
	}
}

// grow adds packets and bytes to sum. A sum above 2^64 - 1 is none, as for flowtally get --sum-by: it has no series until
// its group is gone.
func (t *totals) grow(sum *row, packets, bytes uint64) {
	var carry [2]uint64
	sum.value.Packets, carry[0] = bits.Add64(sum.value.Packets, packets, 0)
	sum.value.Bytes, carry[1] = bits.Add64(sum.value.Bytes, bytes, 0)
	if carry[0]|carry[1] == 0 || sum.tooLarge {
		return
	}
	sum.tooLarge = true
	t.log.Warn("a sum is above 2^64-1: it is exported no more", "sum", sum.entry.Name)
}

// regroup finds the group of each row. A group that was there keeps its total.
func (t *totals) regroup(rows []row) {
	kept := make(map[string]row, len(t.sums))
	for _, sum := range t.sums {
		kept[sum.entry.Name] = sum
	}
	sums, names := make(map[string]row), make([]string, len(rows))
	last := make(map[string]counted, len(rows)) // without the counters that are gone
	for i := range rows {
		e := rows[i].entry
		if was, ok := t.last[e.Name]; ok {
			last[e.Name] = was
		}
		labels := labelsOfGroup(t.group(e))
		first, _ := of(e)
		names[i] = fmt.Sprintf("%d %q", first, labels) // groups that have the same series are one
		if _, ok := sums[names[i]]; ok {
			continue
		}
		sum, ok := kept[names[i]]
		if !ok {
			sum = row{labels: labels, entry: shm.Entry{Name: names[i], Kind: e.Kind, ByteBasis: e.ByteBasis, AddedAt: e.AddedAt}}
		}
		sums[names[i]] = sum
	}
	order := slices.Sorted(maps.Keys(sums))
	t.sums, t.of, t.last = make([]row, len(order)), make([]int, len(rows)), last
	for i, name := range order {
		t.sums[i] = sums[name]
	}
	for i, name := range names {
		t.of[i], _ = slices.BinarySearch(order, name)
	}
}

// labelsOfGroup returns the labels of the series of a group. A label that its counters do not have is left out.
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
