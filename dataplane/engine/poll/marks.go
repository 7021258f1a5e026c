package poll

import (
	"slices"

	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/shm"
)

// marksHold is the longest time between two cycles, in ns, over which an unchanged mark tells that no counter has
// changed. A mark is the same again after 2^32 updates. No 16 counters are updated that often in a second.
const marksHold = int64(1e9)

// marked is a source that has marks, and its marks of this cycle.
type marked struct {
	counters backend.RowCounters
	now      []uint32
	trusted  bool // the marks could be read, and the last cycle is not too long ago
}

// span is counters with one mark that follow one another in a sourceBlock.
type span struct {
	mark     uint32
	seen     uint32 // mark under which the rows were read
	from, to uint8  // in the sourceBlock
	known    bool   // the rows were read since the plan has changed
}

// markedSources are the sources that have marks.
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

// read reads the marks of all sources. Every counter is read after it.
func (l *markedSources) read(now int64) {
	for _, m := range l.list {
		m.trusted = m.counters.Marks(m.now) == nil && now-l.readAt < marksHold
	}
	l.readAt = now
}

// grow makes room for a mark.
func (m *marked) grow(mark uint32) {
	for len(m.now) <= int(mark) {
		m.now = append(m.now, 0)
	}
}

// marksOf appends a word to seen for each mark of counters that follow one another, and makes room for their marks.
func (m *marked) marksOf(seen, ids []uint32) []uint32 {
	first, last := ids[0]/backend.Marked, ids[len(ids)-1]/backend.Marked
	m.grow(last)
	return append(seen, make([]uint32, last-first+1)...)
}

// spansOf appends the spans of counters to spans, and makes room for their marks.
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

// stands says whether no counter of s has changed since its rows were read.
func (m *marked) stands(s *span) bool { return s.known && m.trusted && m.now[s.mark] == s.seen }

// hasRead notes that the rows of s were read in this cycle. It reports whether a counter of s was updated since the last
// read, or may have been.
func (m *marked) hasRead(s *span) (updated bool) {
	updated = !s.known || m.now[s.mark] != s.seen
	s.seen = m.now[s.mark]
	s.known = true
	return updated
}

// read reads the rows whose marks have changed, neighbours by one call, and makes now the sample time of all rows that
// could be read.
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
		// marks[from:i] all stand, or have all changed.
		from := i
		stands := trusted && marks[i] == r.seen[i]
		for i < len(marks) && stands == (trusted && marks[i] == r.seen[i]) {
			i++
		}
		first, to := r.row(from), r.row(i)

		if stands {
			for j := range rows[first:to] {
				rows[first+j].SampledAt = now
			}
			continue
		}
		changed = changed || !slices.Equal(marks[from:i], r.seen[from:i])
		if err := r.source.counters.ReadRows(r.first+uint32(first), rows[first:to], now); err != nil {
			failed = err
			changed = true
			r.known = trusted && r.known // else a mark need not differ: all rows are read again
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
