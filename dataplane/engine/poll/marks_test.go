package poll

import (
	"errors"
	"testing"

	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/shm"
)

// markedSource has 64 counters, and counts the reads of each. The test sets its marks.
type markedSource struct {
	pairs [64]backend.Pair
	reads [64]int
	marks [64 / backend.Marked]uint32
	err   error
}

func (s *markedSource) Name() string { return "marked" }

func (s *markedSource) Read(ids []uint32, dst []backend.Pair) error {
	if s.err != nil {
		return s.err
	}
	for i, id := range ids {
		s.reads[id]++
		dst[i] = s.pairs[id]
	}
	return nil
}

func (s *markedSource) ReadRows(first uint32, dst []shm.Value, at int64) error {
	if s.err != nil {
		return s.err
	}
	for i := range dst {
		id := first + uint32(i)
		s.reads[id]++
		dst[i] = shm.Value{Packets: s.pairs[id].Packets, Bytes: s.pairs[id].Bytes, SampledAt: at}
	}
	return nil
}

func (s *markedSource) Marks(dst []uint32) error {
	copy(dst, s.marks[:])
	return nil
}

// A program updates a counter by store, then mark. A test can interrupt it in between.
func (s *markedSource) store(id int) { s.pairs[id].Packets++; s.pairs[id].Bytes += 60 }
func (s *markedSource) mark(id int)  { s.marks[id/backend.Marked]++ }

// A cycle reads only counters whose mark has changed, both by rows and one by one. Every row gets the time of the cycle,
// because an unchanged mark proves that its value is current.
func TestOnlyChangedCountersAreRead(t *testing.T) {
	for _, tt := range []struct {
		name string
		base backend.Pair // of every counter
		ids  func(row int) uint32
	}{
		{"by rows", backend.Pair{}, func(row int) uint32 { return uint32(row) + 5 }},
		{"with bases", backend.Pair{Packets: 7, Bytes: 700}, func(row int) uint32 { return uint32(row) + 5 }},
		{"in another order", backend.Pair{}, func(row int) uint32 { return 63 - uint32(row) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			const rows = 50
			p, out, s := segmentsPlan(), &published{}, &markedSource{}
			for row := range rows {
				p.SetSource(handle(uint32(row)), s, tt.ids(row), tt.base)
			}
			every := make([]int, 64)
			for id := range every {
				every[id] = id
			}
			now := int64(0)
			cycle := func() {
				t.Helper()
				now += 100
				s.reads = [64]int{}
				if err := p.Cycle(out, now); err != nil {
					t.Fatal(err)
				}
				for row := range rows {
					if want := total(tt.base, s.pairs[tt.ids(row)], now); out.row(row) != want {
						t.Errorf("at %d row %d is %+v, want %+v", now, row, out.row(row), want)
					}
				}
			}
			wantRead := func(ids ...int) {
				t.Helper()
				want := [64]int{}
				for _, id := range ids {
					for i := id / backend.Marked * backend.Marked; i < (id/backend.Marked+1)*backend.Marked; i++ {
						want[i] = 1
					}
				}
				for row := range rows {
					if id := tt.ids(row); s.reads[id] != want[id] {
						t.Errorf("at %d counter %d was read %d times, want %d", now, id, s.reads[id], want[id])
					}
				}
			}
			cycle()
			wantRead(every...)
			cycle()
			wantRead()
			s.store(20)
			s.mark(20)
			cycle()
			wantRead(20)
			s.store(10)
			s.mark(10)
			s.store(60)
			s.mark(60)
			cycle()
			wantRead(10, 60)
			if p.changed != now {
				t.Errorf("the last change was at %d, want %d", p.changed, now)
			}
			was := now
			cycle()
			if p.changed != was {
				t.Errorf("the last change was at %d, want %d", p.changed, was)
			}

			// A program is interrupted between its stores and its mark.
			s.store(40)
			before := out.row(rows - 10)
			if err := p.Cycle(out, now); err != nil || out.row(rows-10) != before {
				t.Errorf("%v; row %+v", err, out.row(rows-10))
			}
			s.mark(40)
			cycle()
			wantRead(40)

			// A source fails: its rows keep value and time, and are read once it works again.
			s.store(20)
			s.mark(20)
			s.err = errors.New("no")
			before = out.row(0)
			if err := p.Cycle(out, now+50); !errors.Is(err, s.err) {
				t.Errorf("got %v", err)
			}
			s.err = nil
			cycle()
			wantRead(20)

			// After a pause of trustMarksFor everything is read. That alone is no change, because an idle period may be as
			// long.
			was = p.changed
			now += trustMarksFor
			cycle()
			wantRead(every...)
			if p.changed != was {
				t.Errorf("after a pause the last change was at %d, want %d", p.changed, was)
			}
			// After a change of the plan, the block's counters of that source are read.
			p.Remove(0)
			p.SetSource(handle(0), s, tt.ids(0), tt.base)
			cycle()
			wantRead(every...)
			if n := testing.AllocsPerRun(100, func() { s.mark(20); p.Cycle(out, now) }); n != 0 {
				t.Errorf("%v allocations a cycle", n)
			}
		})
	}
}
