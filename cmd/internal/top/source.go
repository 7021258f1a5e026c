package top

import (
	"errors"
	"slices"

	"github.com/flowtally/flowtally/cmd/internal/selection"
	"github.com/flowtally/flowtally/cmd/internal/view"
	"github.com/flowtally/flowtally/shm"
)

// source reads the counters of a mirror. It follows changes of the entries, and each new file of the mirror's name.
type source struct {
	in       *shm.Instance
	has      func(shm.Entry) bool // selects counters; nil: all
	sum      *selection.Selection // adds counters up; nil: no sums
	clock    func() int64
	interval int64 // between two looks, in ns

	reader     *shm.Reader
	entries    *shm.EntryWatcher
	history    history
	rowByIndex []*row // by the index of the handle
	rows       []*row // the counters, in order of name
	groups     []*row // the sums, in order of name
	changes    int    // incremented when rows, or the text of a row, change
	added      []*row // not yet merged into rows
	removed    int    // number of removed counters still in rows or added

	look    uint64       // number of the current look
	reading view.Reading // of the last look, without counters
	err     error        // of the last look; if set, the values are older

	snapshot shm.Snapshot
	handles  []shm.Handle
}

func newSource(in *shm.Instance, o Options) *source {
	return &source{
		in:       in,
		has:      o.Select,
		sum:      o.Sum,
		clock:    o.clock(),
		interval: int64(o.Interval),
	}
}

// follow begins a look. It updates the rows and their trends, but not the values: for those, callers use read.
func (s *source) follow() {
	s.look++
	r := s.in.Reader()
	status := r.Status()
	s.reading.Path = r.Path()
	s.reading.Now = s.clock()
	s.reading.Writer = view.NewWriter(status)

	if r != s.reader {
		if s.err = s.beginFile(r); s.err != nil {
			return
		}
	}
	s.err = s.entries.Update(s.add, s.remove)
	s.merge()
	if s.err == nil {
		s.err = s.history.read(s.rowByIndex)
	}
}

// beginFile starts over with a new file. Handles of the old one mean nothing in it.
func (s *source) beginFile(r *shm.Reader) error {
	s.reader = r
	s.entries = r.WatchEntries()
	s.rowByIndex = nil
	s.rows = nil
	s.groups = nil
	s.added = nil
	s.removed = 0
	s.changes++
	return s.history.open(r)
}

// listed returns the rows to show: the sums if the user asked for them, else the counters.
func (s *source) listed() []*row {
	if s.sum != nil {
		return s.groups
	}
	return s.rows
}

// add updates the rows for an added or changed entry.
func (s *source) add(e shm.Entry) {
	if n := int(e.Handle.Index) + 1; n > len(s.rowByIndex) {
		s.rowByIndex = append(s.rowByIndex, make([]*row, n-len(s.rowByIndex))...)
	}
	r := s.rowByIndex[e.Handle.Index]
	if r == nil {
		if s.has != nil && !s.has(e) {
			return
		}
		r = &row{}
		s.rowByIndex[e.Handle.Index] = r
		s.added = append(s.added, r)
	}

	r.describe(e)
	if s.sum != nil {
		r.entry = e
	}
	s.changes++
}

// remove marks the row of a removed counter. merge drops it.
func (s *source) remove(h shm.Handle) {
	if int(h.Index) >= len(s.rowByIndex) || s.rowByIndex[h.Index] == nil {
		return
	}
	s.rowByIndex[h.Index].removed = true
	s.rowByIndex[h.Index] = nil
	s.removed++
	s.changes++
}

// merge sorts in the added rows, and drops the removed ones.
func (s *source) merge() {
	if s.removed == 0 && len(s.added) == 0 {
		return
	}
	if s.removed > 0 {
		removed := func(r *row) bool { return r.removed }
		s.rows = slices.DeleteFunc(s.rows, removed)
		s.added = slices.DeleteFunc(s.added, removed)
		s.removed = 0
	}

	s.rows = append(s.rows, s.added...)
	slices.SortFunc(s.rows, byName) // cheap: only the added rows are out of order
	clear(s.added)
	s.added = s.added[:0]
	if s.sum != nil {
		s.groups = regroup(s.sum, s.groups, s.rows)
	}
}

// read reads the values of rows, and computes their rates.
func (s *source) read(rows []*row) {
	s.sample(rows)
	live := s.err == nil && s.reading.Writer.Live()
	for _, r := range rows {
		r.settle(s.reading.Now, live, s.interval)
	}
}

// sample reads the values of rows, except those already read in this look.
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

// values reads the values of s.handles into the rows. The handles must be those of all rows not yet read in this look, in
// the order of the rows.
func (s *source) values(rows []*row) error {
	err := s.reader.SnapshotOf(&s.snapshot, s.handles)
	if errors.Is(err, shm.ErrBusy) {
		return nil // try again in the next look
	}
	if err != nil {
		return err
	}

	n := 0 // number of values used so far
	for _, r := range rows {
		if r.look == s.look {
			continue
		}
		consecutive := r.look != 0 && r.look+1 == s.look
		if r.group != nil {
			size := len(r.group.members)
			r.addUp(s.snapshot.List[n:n+size], consecutive)
			r.look = s.look
			n += size
			continue
		}

		v := s.snapshot.List[n]
		n++
		if v.SampledAt == 0 && s.snapshot.Gone > 0 {
			continue // the counter was just removed: the next look drops the row
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

// words returns the totals written by a device for the counter, and true. If no device writes any, it returns the
// published value and false. Devices do not record when they write, so the sample time is the time of reading.
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
		r.device = nil
		r.sought = false // look for the device again in the next look
		r.Unread = !view.NotByDevice(err)
		return published, false
	}
	return v, true
}
