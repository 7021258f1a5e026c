package top

import (
	"errors"
	"slices"

	"github.com/flowtally/flowtally/shm"
)

// trendCells is the number of passes in a trend.
const trendCells = 64

// trend has the rates of one counter in the latest passes of the history. Every mirror.history_period the writer makes a
// pass, which appends a record for each changed counter. A counter without a record in a pass has counted nothing.
type trend struct {
	cells        [trendCells]float32 // packets per second; pass n in element n % trendCells
	first, last  int64               // passes with a known rate; first > last: none
	newest, prev shm.Value           // the newest two records
	gap          uint64              // history.gap when newest was added
}

// shortest is how much older than a sample a record must be, in ns, to be the base of the sample's rate.
const shortest = int64(100e6)

// before returns the newest record old enough to be the base of v's rate.
func (t *trend) before(v shm.Value) shm.Value {
	switch {
	case t == nil:
		return shm.Value{}
	case v.SampledAt-t.newest.SampledAt >= shortest:
		return t.newest
	}
	return t.prev
}

// at returns the rate in a pass, and whether it is known.
func (t *trend) at(pass int64) (float32, bool) {
	switch {
	case t == nil || t.first > t.last || pass < max(t.first, t.last-trendCells+1):
		return 0, false
	case pass > t.last:
		return 0, true
	}
	return t.cells[pass%trendCells], true
}

// add adds a record. step is the time between two passes in ns, or 0 if unknown.
func (t *trend) add(pass int64, v shm.Value, step int64, gap uint64) {
	span := v.SampledAt - t.newest.SampledAt
	known := t.newest.SampledAt != 0 && t.gap == gap && span > 0 && v.Packets >= t.newest.Packets
	if !known { // start over after a gap, or after a total that went back
		t.first, t.last = 1, 0
		t.prev = shm.Value{}
		t.newest = v
		t.gap = gap
		return
	}

	if t.first > t.last {
		t.first, t.last = pass, pass-1
	}
	for p := max(t.last+1, pass-trendCells); p < pass; p++ {
		t.cells[p%trendCells] = 0
	}
	if step > 0 && span > 2*step {
		span = step // it counted nothing in earlier passes, so all of it is from this one
	}
	t.cells[pass%trendCells] = float32(float64(v.Packets-t.newest.Packets) * 1e9 / float64(span))
	t.last = pass
	t.prev = t.newest
	t.newest = v
}

// history reads the history of one file.
type history struct {
	cursor *shm.Cursor // nil: the mirror has no history
	buf    [256]shm.Record

	pass     int64    // number of the newest pass
	cycle    uint64   // of the newest pass
	began    int64    // sample time of the first record of the newest pass
	spans    [5]int64 // times between the latest passes
	measured int      // number of all spans so far
	step     int64    // the median of spans: the period of the passes
	gap      uint64   // incremented when records are lost
}

// mostRewound is the longest history, in records, to read from its beginning at the start. In a longer one that would
// take too long.
const mostRewound = 1 << 18

func (h *history) open(r *shm.Reader) error {
	*h = history{}
	status := r.Status()
	if status.History == 0 {
		return nil
	}
	cursor, err := r.History()
	if err != nil {
		return err
	}
	if status.History <= mostRewound {
		cursor.Rewind()
	}
	h.cursor = cursor
	return nil
}

// read adds the records since the last call to the trends of rows. rows is indexed by handle.
func (h *history) read(rows []*row) error {
	if h.cursor == nil {
		return nil
	}
	for range mostRewound / len(h.buf) { // give up eventually, because the writer may be faster than this loop
		n, lost, err := h.cursor.Next(h.buf[:])
		if lost > 0 {
			h.gap++
		}
		for i := range h.buf[:n] {
			h.record(&h.buf[i], rows)
		}
		if n == 0 || err != nil && !errors.Is(err, shm.ErrStale) {
			return err
		}
	}
	return nil
}

// record adds one record. The first record of another cycle begins a pass.
func (h *history) record(rec *shm.Record, rows []*row) {
	at := rec.Value.SampledAt
	if rec.Kind != 0 || at <= 0 {
		return
	}
	if rec.Cycle != h.cycle || h.pass == 0 {
		h.begin(rec.Cycle, at)
	}

	if int(rec.Handle.Index) >= len(rows) {
		return
	}
	r := rows[rec.Handle.Index]
	if r == nil || r.Generation != rec.Handle.Generation {
		return
	}
	if r.trend == nil {
		r.trend = &trend{first: 1}
	}
	r.trend.add(h.pass, rec.Value, h.step, h.gap)
}

// begin begins a pass. Passes without any change leave no record, so begin derives their number from the time since the
// last one.
func (h *history) begin(cycle uint64, at int64) {
	if span := at - h.began; h.began != 0 && span > 0 {
		h.measure(span)
		h.pass += h.unrecorded(span)
	}
	h.pass++
	h.cycle = cycle
	h.began = at
}

// unrecorded returns how many passes without a record fit into a span since the newest pass began.
func (h *history) unrecorded(span int64) int64 {
	return min((span-h.step/2)/h.step, trendCells)
}

// measure updates the period from the time between two passes. It uses the median, because a restart of the writer makes
// a span too short, and passes without any change make one too long.
func (h *history) measure(span int64) {
	h.spans[h.measured%len(h.spans)] = span
	h.measured++

	sorted := h.spans
	known := sorted[:min(h.measured, len(sorted))]
	slices.Sort(known)
	h.step = max(known[(len(known)-1)/2], 1e6)
}

// end returns the pass with which a trend drawn at this time ends. Passes without a record may have followed the newest.
func (h *history) end(now int64) int64 {
	if h.step == 0 || now <= h.began {
		return h.pass
	}
	return h.pass + h.unrecorded(now-h.began)
}
