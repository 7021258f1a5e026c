package top

import (
	"errors"
	"slices"

	"github.com/flowtally/flowtally/cmd/internal/selection"
	"github.com/flowtally/flowtally/cmd/internal/view"
	"github.com/flowtally/flowtally/shm"
)

// source reads the counters of a mirror. It follows the entries, and the file that takes the mirror's name.
type source struct {
	in       *shm.Instance
	has      func(shm.Entry) bool // which counters are shown; nil: all
	sum      *selection.Selection // adds counters up; nil: each counter is shown
	clock    func() int64
	interval int64 // between two looks, ns

	reader    *shm.Reader
	catalogue *shm.Catalogue
	history   history
	byIndex   []*row
	rows      []*row // of the counters, in order of name
	groups    []*row // of the sums, in order of name
	changes   int    // moves when rows does, or the text of a row
	fresh     []*row // not in rows yet
	left      int    // of rows, that were removed and are still there

	look    uint64
	reading view.Reading // of the last look, without counters
	err     error        // of the last look: the values are of an earlier one

	snapshot shm.Snapshot
	handles  []shm.Handle
}

func newSource(in *shm.Instance, o Options) *source {
	return &source{in: in, has: o.Select, sum: o.Sum, clock: o.clock(), interval: int64(o.Interval)}
}

// follow begins a look: it brings the rows and their trends up to date. The values are read by read.
func (s *source) follow() {
	s.look++
	r := s.in.Reader()
	status := r.Status()
	s.reading.Path, s.reading.Now, s.reading.Writer = r.Path(), s.clock(), view.NewWriter(status)
	if r != s.reader {
		s.reader, s.catalogue = r, r.Catalogue()
		s.byIndex, s.rows, s.groups, s.fresh, s.left = nil, nil, nil, nil, 0
		s.changes++
		if s.err = s.history.open(r); s.err != nil {
			return
		}
	}
	s.err = s.catalogue.Update(s.add, s.remove)
	s.merge()
	if s.err == nil {
		s.err = s.history.read(s.byIndex)
	}
}

// listed are the rows of the table: the counters, or their sums.
func (s *source) listed() []*row {
	if s.sum != nil {
		return s.groups
	}
	return s.rows
}

// add takes over an entry that was added or changed.
func (s *source) add(e shm.Entry) {
	if n := int(e.Handle.Index) + 1; n > len(s.byIndex) {
		s.byIndex = append(s.byIndex, make([]*row, n-len(s.byIndex))...)
	}
	r := s.byIndex[e.Handle.Index]
	if r == nil {
		if s.has != nil && !s.has(e) {
			return
		}
		r = &row{}
		s.byIndex[e.Handle.Index] = r
		s.fresh = append(s.fresh, r)
	}
	r.describe(e)
	if s.sum != nil {
		r.entry = e
	}
	s.changes++
}

// remove takes out a counter that was removed.
func (s *source) remove(h shm.Handle) {
	if int(h.Index) >= len(s.byIndex) || s.byIndex[h.Index] == nil {
		return
	}
	s.byIndex[h.Index].removed = true
	s.byIndex[h.Index] = nil
	s.left++
	s.changes++
}

// merge puts the new rows in order, and drops the removed ones.
func (s *source) merge() {
	if s.left > 0 {
		gone := func(r *row) bool { return r.removed }
		s.rows = slices.DeleteFunc(s.rows, gone)
		s.fresh = slices.DeleteFunc(s.fresh, gone)
	}
	if s.left == 0 && len(s.fresh) == 0 {
		return
	}
	s.rows = append(s.rows, s.fresh...)
	slices.SortFunc(s.rows, byName) // sorted runs are cheap
	clear(s.fresh)
	s.fresh, s.left = s.fresh[:0], 0
	if s.sum != nil {
		s.groups = regroup(s.sum, s.groups, s.rows)
	}
}

// read samples rows, and settles them.
func (s *source) read(rows []*row) {
	s.sample(rows)
	live := s.err == nil && s.reading.Writer.Live()
	for _, r := range rows {
		r.settle(s.reading.Now, live, s.interval)
	}
}

// sample reads the values of rows, of which each is read once in a look.
func (s *source) sample(rows []*row) {
	s.handles = s.handles[:0]
	for _, r := range rows {
		if r.look != s.look {
			s.handles = r.handles(s.handles)
		}
	}
	if len(s.handles) > 0 && s.err == nil {
		s.err = s.values(rows)
	}
}

// values takes over the values of the handles, which are the rows that this look has not read.
func (s *source) values(rows []*row) error {
	err := s.reader.SnapshotOf(&s.snapshot, s.handles)
	if errors.Is(err, shm.ErrBusy) {
		return nil // the next look
	}
	if err != nil {
		return err
	}
	n := 0
	for _, r := range rows {
		if r.look == s.look {
			continue
		}
		consecutive := r.look != 0 && r.look+1 == s.look
		if r.group != nil {
			size := len(r.group.members)
			r.addUp(s.snapshot.List[n:n+size], consecutive)
			r.look, n = s.look, n+size
			continue
		}
		v := s.snapshot.List[n]
		n++
		if v.SampledAt == 0 && s.snapshot.Gone > 0 {
			continue // removed since: the next look takes it out
		}
		words := false
		if r.Completion() {
			v, words = s.words(r, v)
		}
		r.sample(v, words, consecutive)
		r.look = s.look
	}
	return nil
}

// words returns the totals that a device writes for the counter, or the published value if no device does. The
// device does not record when it writes: the sample time is the time of the read.
func (s *source) words(r *row, published shm.Value) (shm.Value, bool) {
	if !r.sought {
		r.sought = true
		d, err := s.reader.Device(r.handle())
		if err == nil {
			r.device = &d
		}
		r.Unread = err != nil && !view.NotByDevice(err)
	}
	if r.device == nil {
		return published, false
	}
	v, err := view.LoadDevice(r.device, s.clock())
	if err != nil {
		r.device, r.sought = nil, false
		r.Unread = !view.NotByDevice(err)
		return published, false
	}
	return v, true
}
