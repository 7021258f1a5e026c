package poll

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/shm"
)

// fixedSource returns the pairs that a test sets.
type fixedSource struct {
	name  string
	pairs []backend.Pair
}

func (s *fixedSource) Name() string { return s.name }

func (s *fixedSource) Read(ids []uint32, dst []backend.Pair) error {
	for i, id := range ids {
		dst[i] = s.pairs[id]
	}
	return nil
}

// sampledSource returns the pairs and sample times that a test sets.
type sampledSource struct {
	fixedSource
	at []int64
}

func (s *sampledSource) ReadTimed(ids []uint32, dst []backend.Pair, at []int64) error {
	for i, id := range ids {
		dst[i], at[i] = s.pairs[id], s.at[id]
	}
	return nil
}

// published keeps the values that a cycle publishes.
type published struct {
	rows    shm.Block
	blocks  int
	records map[uint32]shm.Value
}

func (s *published) BeginCycle() uint64                  { return 1 }
func (s *published) PublishBlock(_ int, v *shm.Block)    { s.rows = *v; s.blocks++ }
func (s *published) PublishRecord(i uint32, v shm.Value) { s.records[i] = v }
func (s *published) AppendHistory(shm.Handle, shm.Value) {}
func (s *published) EndCycle(int64)                      {}
func (s *published) row(i int) shm.Value                 { return s.rows[i] }

// segmentsPlan returns a plan with a segment of blocks and a segment of records.
func segmentsPlan() *Plan {
	p := NewPlan(0)
	p.AddSegment(handle(0), false)
	p.AddSegment(handle(4096), true)
	return p
}

func handle(i uint32) shm.Handle { return shm.Handle{Index: i, Generation: 1} }
func value(packets, bytes uint64, at int64) shm.Value {
	return shm.Value{Packets: packets, Bytes: bytes, SampledAt: at}
}

// Values of a TimedCounters source show their own sample times. Before its first sample a value is
// absent, or stays as it was, and no value ever falls. Values of other sources show the time of the cycle.
func TestSampledValuesShowTheirOwnTimes(t *testing.T) {
	p := segmentsPlan()
	b := &sampledSource{}
	b.pairs = []backend.Pair{{Packets: 5, Bytes: 500}, {Packets: 6, Bytes: 600}, {Packets: 7, Bytes: 700}, {Packets: 8, Bytes: 800}}
	b.at = []int64{90, 0, 95, 80}
	plain := &fixedSource{name: "hand"}
	plain.pairs = []backend.Pair{{Packets: 1, Bytes: 60}}
	p.SetSource(handle(0), b, 0, backend.Pair{})
	p.SetSource(handle(1), b, 1, backend.Pair{Packets: 100})
	p.SetSource(handle(2), plain, 0, backend.Pair{})
	p.SetSource(handle(4096), b, 2, backend.Pair{Packets: 10, Bytes: 1000})
	p.RestoreValue(3, value(50, 5000, 70))
	p.SetSource(handle(3), b, 3, backend.Pair{Packets: 40, Bytes: 4000})
	s := &published{records: make(map[uint32]shm.Value)}
	check := func(when string, want ...shm.Value) {
		t.Helper()
		if err := p.Cycle(s, 100); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, []shm.Value{s.row(0), s.row(1), s.row(2), s.row(3), s.records[4096]}); d != "" {
			t.Errorf("%s:\n%s", when, d)
		}
	}
	check("first", value(5, 500, 90), shm.Value{}, value(1, 60, 100), value(50, 5000, 70), value(17, 1700, 95))
	b.at[1], b.at[3] = 97, 98
	b.pairs[3] = backend.Pair{Packets: 11, Bytes: 1100}
	b.at[0], b.pairs[0] = 85, backend.Pair{Packets: 9, Bytes: 900} // older than the published value
	check("then", value(5, 500, 90), value(106, 600, 97), value(1, 60, 100), value(51, 5100, 98), value(17, 1700, 95))
	if n := testing.AllocsPerRun(100, func() { p.Cycle(s, 100) }); n != 0 {
		t.Errorf("%v allocations a cycle", n)
	}
}

// The total of a counter continues when its source changes, in a block and in a record.
func TestTotalContinuesOverAChangeOfSource(t *testing.T) {
	for _, index := range []uint32{5, 4096} {
		p := segmentsPlan()
		b := &sampledSource{at: []int64{90}}
		b.pairs = []backend.Pair{{Packets: 5, Bytes: 500}}
		plain := &fixedSource{name: "hand"}
		plain.pairs = []backend.Pair{{Packets: 1000, Bytes: 60000}}
		s := &published{records: make(map[uint32]shm.Value)}
		at := func() shm.Value {
			t.Helper()
			if err := p.Cycle(s, 100); err != nil {
				t.Fatal(err)
			}
			if index == 4096 {
				return s.records[4096]
			}
			return s.row(int(index))
		}
		p.SetSource(handle(index), b, 0, backend.Pair{})
		if got := at(); got != value(5, 500, 90) {
			t.Errorf("%d: %+v", index, got)
		}
		b.pairs[0], b.at[0] = backend.Pair{Packets: 7, Bytes: 700}, 99 // the last sample, not published yet
		refused := errors.New("no")
		if err := p.ChangeSource(handle(index), func(backend.Pair) (backend.Counters, uint32, backend.Pair, error) {
			return nil, 0, backend.Pair{}, refused
		}); !errors.Is(err, refused) {
			t.Errorf("%d: %v", index, err)
		}
		err := p.ChangeSource(handle(index), func(total backend.Pair) (backend.Counters, uint32, backend.Pair, error) {
			return plain, 0, backend.Sub(total, plain.pairs[0]), nil
		})
		if err != nil {
			t.Fatal(err)
		}
		plain.pairs[0] = backend.Pair{Packets: 1003, Bytes: 60180}
		if got := at(); got != value(10, 880, 100) {
			t.Errorf("%d: %+v after the move", index, got)
		}
		p.StopReading(handle(index))
		plain.pairs[0] = backend.Pair{}
		if got := at(); got != value(10, 880, 100) {
			t.Errorf("%d: %+v without a source", index, got)
		}
	}
}

// brokenSource cannot be read.
type brokenSource struct {
	fixedSource
	err error
}

func (s *brokenSource) Read([]uint32, []backend.Pair) error { return s.err }

// The value of an earlier process stays in a record until the source has a later one, even if the counter moves to a block.
func TestRestoredRecordStaysUntilItsSourceIsAhead(t *testing.T) {
	last := value(50, 5000, 70)
	for _, to := range []uint32{3, 4097} {
		p := segmentsPlan()
		p.RestoreValue(4096, last)
		exchange := func([]shm.Handle, []shm.Entry, []bool) ([]shm.Handle, error) { return []shm.Handle{handle(to)}, nil }
		if _, err := p.Exchange([]shm.Handle{handle(4096)}, []shm.Entry{{Latency: to != 3}}, []bool{true}, exchange); err != nil {
			t.Fatal(err)
		}
		refused := errors.New("no")
		p.SetSource(handle(to), &brokenSource{err: refused}, 0, backend.Pair{Packets: 40, Bytes: 4000})
		s := &published{records: make(map[uint32]shm.Value)}
		if err := p.Cycle(s, 100); to == 3 && (!errors.Is(err, refused) || s.row(3) != last) {
			t.Errorf("%+v, %v, want %+v, %v", s.row(3), err, last, refused)
		}
		err := p.ChangeSource(handle(to), func(total backend.Pair) (backend.Counters, uint32, backend.Pair, error) {
			if total != (backend.Pair{Packets: 50, Bytes: 5000}) {
				t.Errorf("%d: the total is %+v, want %+v", to, total, last)
			}
			return nil, 0, backend.Pair{}, refused
		})
		if !errors.Is(err, refused) {
			t.Error(err)
		}
	}
}

// rowSource is a source that fills rows, and counts the calls of ReadRows.
type rowSource struct {
	fixedSource
	calls int
	err   error
}

func (b *rowSource) ReadRows(first uint32, dst []shm.Value, at int64) error {
	b.calls++
	if b.err != nil {
		return b.err
	}
	for i := range dst {
		p := b.pairs[first+uint32(i)]
		dst[i] = shm.Value{Packets: p.Packets, Bytes: p.Bytes, SampledAt: at}
	}
	return nil
}

// Marks returns marks that change with every change of a pair.
func (b *rowSource) Marks(dst []uint32) error {
	clear(dst)
	for i, p := range b.pairs {
		if m := i / backend.Marked; m < len(dst) {
			dst[m] += uint32(p.Packets + p.Bytes)
		}
	}
	return b.err
}

// A source fills rows only of adjacent counters without a base.
func TestSourceFillsOnlyAdjacentRowsWithoutABase(t *testing.T) {
	for _, tt := range []struct {
		name  string
		ids   []uint32
		rows  []uint32
		base  backend.Pair
		calls int
	}{
		{"neighbours", []uint32{2, 3, 4}, []uint32{5, 6, 7}, backend.Pair{}, 1},
		{"another order", []uint32{3, 2, 4}, []uint32{5, 6, 7}, backend.Pair{}, 0},
		{"as far apart as neighbours, in another order", []uint32{2, 4, 3, 5}, []uint32{5, 6, 7, 8}, backend.Pair{}, 0},
		{"rows that are apart", []uint32{2, 3, 4}, []uint32{5, 6, 8}, backend.Pair{}, 0},
		{"a base", []uint32{2, 3, 4}, []uint32{5, 6, 7}, backend.Pair{Packets: 7, Bytes: 700}, 0},
	} {
		p, s := segmentsPlan(), &published{}
		b := &rowSource{fixedSource: fixedSource{name: "hand"}}
		for i := range uint64(8) {
			b.pairs = append(b.pairs, backend.Pair{Packets: 10 + i, Bytes: 1000 + i})
		}
		for i, id := range tt.ids {
			base := backend.Pair{}
			if i == 1 {
				base = tt.base
			}
			p.SetSource(handle(tt.rows[i]), b, id, base)
		}
		check := func(at int64) {
			t.Helper()
			for i, id := range tt.ids {
				want := total(backend.Pair{}, b.pairs[id], at)
				if i == 1 {
					want = total(tt.base, b.pairs[id], at)
				}
				if got := s.row(int(tt.rows[i])); got != want {
					t.Errorf("%s: row %d: %+v, want %+v", tt.name, tt.rows[i], got, want)
				}
			}
		}
		if err := p.Cycle(s, 100); err != nil || b.calls != tt.calls {
			t.Errorf("%s: %v; asked %d times for rows, want %d", tt.name, err, b.calls, tt.calls)
		}
		check(100)
		if tt.calls > 0 {
			b.err = errors.New("no")
			if err := p.Cycle(s, 200); !errors.Is(err, b.err) {
				t.Errorf("%s: %v", tt.name, err)
			}
			check(100) // as it was, with its age
		}
	}
}

// A block with two sources is read from both, and by rows again once one of them has no counter left in it.
func TestBlockOfTwoSourcesIsReadFromBoth(t *testing.T) {
	p, s := segmentsPlan(), &published{}
	b, other := &rowSource{fixedSource: fixedSource{name: "hand"}}, &fixedSource{name: "other"}
	b.pairs = []backend.Pair{{Packets: 1, Bytes: 60}, {Packets: 2, Bytes: 120}}
	other.pairs = []backend.Pair{{Packets: 7, Bytes: 700}}
	p.SetSource(handle(0), b, 0, backend.Pair{})
	p.SetSource(handle(1), b, 1, backend.Pair{})
	p.SetSource(handle(5), other, 0, backend.Pair{})
	check := func(when string, calls int, want ...shm.Value) {
		t.Helper()
		b.calls = 0
		if err := p.Cycle(s, 100); err != nil || b.calls != calls {
			t.Errorf("%s: %v; asked %d times for rows, want %d", when, err, b.calls, calls)
		}
		if d := cmp.Diff(want, []shm.Value{s.row(0), s.row(1), s.row(5)}); d != "" {
			t.Errorf("%s:\n%s", when, d)
		}
	}
	check("two", 0, value(1, 60, 100), value(2, 120, 100), value(7, 700, 100))
	p.Remove(5)
	b.pairs[1] = backend.Pair{Packets: 3, Bytes: 180}
	check("one", 1, value(1, 60, 100), value(3, 180, 100), shm.Value{})
	p.Remove(0)
	p.Remove(1)
	check("none", 0, value(1, 60, 100), value(3, 180, 100), shm.Value{}) // not published again
}
