package engine

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/shm"
)

// blockSize is the number of counters that one publish carries.
const blockSize = shm.BlockLen

// plan says what one poll cycle reads and where it goes. The poller runs it,
// control calls change it, both under mu.
type plan struct {
	mu       sync.Mutex
	segments []*segmentPlan   // of the mirror, by number; nil: none of its counters is known
	records  map[uint32]*feed // by index
	pairs    []backend.Pair   // scratch of one block
	sampled  []int64          // scratch of one block

	nextHistory, historyPeriod int64
}

// segmentPlan is one segment of the mirror: its blocks, or none where it holds records.
type segmentPlan struct {
	blocks  []blockPlan
	tracked []tracked // by slot: whose history is kept
}

// tracked is a counter whose history is kept. Generation 0: none.
type tracked struct {
	handle shm.Handle
	seen   backend.Pair // last written to the ring
	now    shm.Value    // of a record, which has no row to look at
}

// blockPlan is one block: its values as last published, and what feeds them.
type blockPlan struct {
	run   run // how most blocks are read; it lies beside rows, for caches that are cold
	feeds []feed
	rows  shm.Block
}

// run is all that one block reads: adjacent counters of one source that fills rows, in adjacent rows. The zero
// run: the block is read feed by feed.
type run struct {
	source backend.RowCounters
	first  uint32 // counter
	at, n  uint8  // rows
}

// feed is what one source counts for one block or record. The slices run in
// parallel, in the order of the rows.
type feed struct {
	source backend.Counters
	timed  backend.TimedCounters // the same, where it samples each value on its own; else nil
	rows   backend.RowCounters   // the same, where it fills rows by itself; else nil
	ids    []uint32              // as the source calls them
	at     []uint8               // row
	base   []backend.Pair        // what the total had reached before this source
	plain  bool                  // adjacent rows, and no base but zero
}

// newPlan is a plan without counters; a history period of 0 keeps none.
func newPlan(history time.Duration) *plan {
	return &plan{
		historyPeriod: int64(history),
		records:       make(map[uint32]*feed),
		pairs:         make([]backend.Pair, blockSize),
		sampled:       make([]int64, blockSize),
	}
}

// room makes the plan know the segment of a counter, which is of latency counters or not. It
// is called with the control lock held, which alone lets segments be added; cycles wait only
// until the segment stands in the list.
func (p *plan) room(h shm.Handle, latency bool) {
	n := int(h.Index / shm.SegmentLen)
	if n < len(p.segments) && p.segments[n] != nil {
		return
	}
	s := &segmentPlan{tracked: make([]tracked, shm.SegmentLen)}
	if !latency {
		s.blocks = make([]blockPlan, shm.SegmentLen/blockSize)
	}
	longer := append(make([]*segmentPlan, 0, n+1), p.segments...)
	for len(longer) <= n {
		longer = append(longer, nil)
	}
	longer[n] = s
	p.mu.Lock()
	p.segments = longer
	p.mu.Unlock()
}

// block is the block of index; nil: it is of a latency counter.
func (p *plan) block(index uint32) *blockPlan {
	s := p.segments[index/shm.SegmentLen]
	if s.blocks == nil {
		return nil
	}
	return &s.blocks[index%shm.SegmentLen/blockSize]
}

func (p *plan) tracked(index uint32) *tracked {
	return &p.segments[index/shm.SegmentLen].tracked[index%shm.SegmentLen]
}

func newFeed(s backend.Counters) feed {
	t, _ := s.(backend.TimedCounters)
	r, _ := s.(backend.RowCounters)
	return feed{source: s, timed: t, rows: r}
}

// restore makes v the value that the block publishes for index until set names a source.
func (p *plan) restore(index uint32, v shm.Value) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if b := p.block(index); b != nil {
		b.rows[index%blockSize] = v
	}
}

// set makes counter id of s what h is read from, from the next cycle on.
func (p *plan) set(h shm.Handle, s backend.Counters, id uint32, base backend.Pair) {
	p.mu.Lock()
	defer p.mu.Unlock()
	index := h.Index
	*p.tracked(index) = tracked{handle: h, seen: base}
	p.feed(index, s, id, base)
}

// feed makes counter id of s what index is read from. It is called with mu held.
func (p *plan) feed(index uint32, s backend.Counters, id uint32, base backend.Pair) {
	p.unset(index)
	bp := p.block(index)
	if bp == nil {
		f := newFeed(s)
		f.ids, f.base = []uint32{id}, []backend.Pair{base}
		p.records[index] = &f
		return
	}
	f, row := bp.feedOf(s), uint8(index%blockSize)
	i, _ := slices.BinarySearch(f.at, row)
	f.ids, f.at, f.base = slices.Insert(f.ids, i, id), slices.Insert(f.at, i, row), slices.Insert(f.base, i, base)
	bp.settle(f)
}

// shown is what the mirror shows of index.
func (p *plan) shown(index uint32) shm.Value {
	if b := p.block(index); b != nil {
		return b.rows[index%blockSize]
	}
	return p.tracked(index).now
}

// clear ends the publishing of index; its row is absent from the next cycle on.
func (p *plan) clear(index uint32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.unset(index)
	*p.tracked(index) = tracked{}
	if b := p.block(index); b != nil {
		b.rows[index%blockSize] = shm.Value{}
	}
}

func (p *plan) unset(index uint32) {
	bp, row := p.block(index), uint8(index%blockSize)
	if bp == nil {
		delete(p.records, index)
		return
	}
	for i := range bp.feeds {
		f := &bp.feeds[i]
		if j, ok := slices.BinarySearch(f.at, row); ok {
			f.ids, f.at, f.base = slices.Delete(f.ids, j, j+1), slices.Delete(f.at, j, j+1), slices.Delete(f.base, j, j+1)
			bp.settle(f)
			return
		}
	}
}

func (bp *blockPlan) feedOf(s backend.Counters) *feed {
	for i := range bp.feeds {
		if bp.feeds[i].source == s {
			return &bp.feeds[i]
		}
	}
	bp.feeds = append(bp.feeds, newFeed(s))
	return &bp.feeds[len(bp.feeds)-1]
}

// publisher is what a cycle needs of shm.Writer.
type publisher interface {
	BeginCycle() uint64
	PublishBlock(block int, values *shm.Block)
	PublishRecord(index uint32, v shm.Value)
	AppendHistory(h shm.Handle, v shm.Value)
	EndCycle(now int64)
}

// cycle reads everything and publishes it under one cycle number, sampled at
// now. A block whose source cannot be read keeps its last values and their sample
// times, so that it shows its age; the error says which.
func (p *plan) cycle(w publisher, now int64) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var failed error
	w.BeginCycle()
	for n, s := range p.segments {
		if s == nil {
			continue
		}
		for i := range s.blocks {
			b := n*(shm.SegmentLen/blockSize) + i
			live, err := p.readBlock(&s.blocks[i], b, now)
			if err != nil {
				failed = errors.Join(failed, err)
			}
			if live {
				w.PublishBlock(b, &s.blocks[i].rows)
			}
		}
	}
	for index, f := range p.records {
		pairs := p.pairs[:1]
		p.sampled[0] = now
		if err := f.read(pairs, p.sampled); err != nil {
			failed = errors.Join(failed, fmt.Errorf("reading record %d from %s: %w", index, f.source.Name(), err))
			continue
		}
		v := total(f.base[0], pairs[0], p.sampled[0])
		t := p.tracked(index)
		if f.timed != nil && !newer(v, t.now) {
			continue
		}
		t.now = v
		w.PublishRecord(index, v)
	}
	if p.historyPeriod > 0 && now >= p.nextHistory {
		p.nextHistory = now + p.historyPeriod
		p.remember(w)
	}
	w.EndCycle(now)
	return failed
}

// readBlock reads the feeds of block b into its rows, and tells whether it has any.
func (p *plan) readBlock(bp *blockPlan, b int, now int64) (live bool, failed error) {
	if r := &bp.run; r.source != nil {
		if err := r.source.ReadRows(r.first, bp.rows[r.at:][:r.n], now); err != nil {
			failed = fmt.Errorf("reading block %d from %s: %w", b, r.source.Name(), err)
		}
		return true, failed
	}
	for i := range bp.feeds {
		f := &bp.feeds[i]
		if len(f.ids) == 0 {
			continue
		}
		live = true
		pairs := p.pairs[:len(f.ids)]
		if err := f.read(pairs, p.sampled); err != nil {
			failed = errors.Join(failed, fmt.Errorf("reading block %d from %s: %w", b, f.source.Name(), err))
			continue
		}
		if f.timed != nil {
			bp.fillTimed(f, pairs, p.sampled)
		} else {
			bp.fill(f, pairs, now)
		}
	}
	return live, failed
}

// remember writes what has changed since the last time to the mirror's ring.
// Once a period, not once a cycle, so that a ring of n records reaches back at least n
// periods divided by the number of counters that move.
func (p *plan) remember(w publisher) {
	for _, s := range p.segments {
		if s == nil {
			continue
		}
		for i := range s.tracked {
			t := &s.tracked[i]
			if t.handle.Generation == 0 {
				continue
			}
			v := p.shown(t.handle.Index)
			if own := (backend.Pair{Packets: v.Packets, Bytes: v.Bytes}); own != t.seen {
				t.seen = own
				w.AppendHistory(t.handle, v)
			}
		}
	}
}

// settle notes what a cycle need not look at each time, after f, a feed of the block, has changed.
func (bp *blockPlan) settle(f *feed) {
	n := len(f.at)
	f.plain = n > 0 && int(f.at[n-1]-f.at[0]) == n-1 && !slices.ContainsFunc(f.base, func(b backend.Pair) bool { return b != backend.Pair{} })
	bp.run = run{}
	var only *feed
	for i := range bp.feeds {
		switch {
		case len(bp.feeds[i].ids) == 0:
		case only != nil:
			return
		default:
			only = &bp.feeds[i]
		}
	}
	if only == nil || only.rows == nil || !only.plain {
		return
	}
	for i, id := range only.ids {
		if id != only.ids[0]+uint32(i) {
			return
		}
	}
	bp.run = run{source: only.rows, first: only.ids[0], at: only.at[0], n: uint8(len(only.ids))}
}

// fill adds each source's base and puts the totals in their rows: most often
// rows that follow one another, of sources that carry on from nothing. The lengths are
// pinned so that the loops carry no bounds check.
func (bp *blockPlan) fill(f *feed, pairs []backend.Pair, now int64) {
	if f.plain {
		rows := bp.rows[f.at[0]:][:len(pairs)]
		for j := range pairs {
			rows[j] = shm.Value{Packets: pairs[j].Packets, Bytes: pairs[j].Bytes, SampledAt: now}
		}
		return
	}
	at, base := f.at[:len(pairs)], f.base[:len(pairs)]
	for j := range pairs {
		bp.rows[at[j]%blockSize] = total(base[j], pairs[j], now)
	}
}
