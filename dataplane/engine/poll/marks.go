package poll

import (
	"slices"

	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/shm"
)

// trustMarksFor is the longest time between two cycles, in ns, after which an equal mark still proves that no counter
// changed. A mark wraps around after 2^32 updates, and no 16 counters get that many updates in a second.
const trustMarksFor = int64(1e9)

// marked is a source with marks.
type marked struct {
	counters backend.RowCounters
	now      []uint32 // its marks, read at the start of this cycle
	trusted  bool     // the marks could be read, and the last cycle was less than trustMarksFor ago
}

// span is a range of counters in a sourceBlock that share a mark.
type span struct {
	mark     uint32
	seen     uint32 // the mark at the last read of the rows
	from, to uint8  // in the sourceBlock
	known    bool   // the rows were read since the plan last changed
}

// markedSources lists the sources with marks.
type markedSources struct {
	list   []*marked
	readAt int64 // time of the last cycle
}

// of returns the marks of s.
func (l *markedSources) of(s backend.RowCounters) *marked {
	for _, m := range l.list {
		if m.counters == s {
			return m
		}
	}
	m := &marked{counters: s}
	l.list = append(l.list, m)
	return m
}

// read reads the marks of all sources. It must come before every read of a counter in this cycle: see Plan.Cycle.
func (l *markedSources) read(now int64) {
	for _, m := range l.list {
		m.trusted = m.counters.Marks(m.now) == nil && now-l.readAt < trustMarksFor
	}
	l.readAt = now
}

// grow extends now to include a mark.
func (m *marked) grow(mark uint32) {
	for len(m.now) <= int(mark) {
		m.now = append(m.now, 0)
	}
}

// marksOf appends one word to seen for each mark of adjacent counters, and extends now to include those marks.
func (m *marked) marksOf(seen, ids []uint32) []uint32 {
	first, last := ids[0]/backend.Marked, ids[len(ids)-1]/backend.Marked
	m.grow(last)
	return append(seen, make([]uint32, last-first+1)...)
}

// spansOf appends the spans of counters to spans, and extends now to include their marks.
func (m *marked) spansOf(spans []span, ids []uint32) []span {
	for i, id := range ids {
		mark := id / backend.Marked
		if n := len(spans); n > 0 && spans[n-1].mark == mark {
			spans[n-1].to++
			continue
		}
		m.grow(mark)
		spans = append(spans, span{mark: mark, from: uint8(i), to: uint8(i + 1)})
	}
	return spans
}

// unchanged reports whether no counter of s has changed since the last read of its rows.
func (m *marked) unchanged(s *span) bool { return s.known && m.trusted && m.now[s.mark] == s.seen }

// hasRead notes that this cycle read the rows of s. It reports whether a counter of s was, or may have been, updated since
// the read before.
func (m *marked) hasRead(s *span) (updated bool) {
	updated = !s.known || m.now[s.mark] != s.seen
	s.seen = m.now[s.mark]
	s.known = true
	return updated
}

// read reads the rows whose marks changed, adjacent ones in one call. A row with an unchanged mark has its old value now, so
// it gets the sample time now as well. Only rows that could not be read keep their sample times.
func (r *run) read(rows []shm.Value, now int64) (changed bool, failed error) {
	marks := r.source.now[r.first/backend.Marked:][:len(r.seen)]
	trusted := r.known && r.source.trusted
	if trusted && slices.Equal(marks, r.seen) {
		for i := range rows {
			rows[i].SampledAt = now
		}
		return false, nil
	}

	r.known = true
	for i := 0; i < len(marks); {
		// Find the longest run marks[from:i] in which all marks are unchanged, or all changed.
		from := i
		unchanged := trusted && marks[i] == r.seen[i]
		for i < len(marks) && unchanged == (trusted && marks[i] == r.seen[i]) {
			i++
		}
		first, to := r.row(from), r.row(i)

		if unchanged {
			for j := range rows[first:to] {
				rows[first+j].SampledAt = now
			}
			continue
		}

		changed = changed || !slices.Equal(marks[from:i], r.seen[from:i])
		if err := r.source.counters.ReadRows(r.first+uint32(first), rows[first:to], now); err != nil {
			failed = err
			changed = true
			r.known = trusted && r.known // seen is of no use without trust: read all rows again next time
			continue
		}
		copy(r.seen[from:i], marks[from:i])
	}
	return changed, failed
}

// row returns the first row of mark i.
func (r *run) row(i int) int {
	return min(max(i*backend.Marked-int(r.first%backend.Marked), 0), int(r.n))
}
