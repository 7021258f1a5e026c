package poll

import (
	"sync"
	"time"

	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/shm"
)

// blockSize is the number of counters that one call of PublishBlock publishes.
const blockSize = shm.BlockLen

// Plan holds the source and the base of every counter of the mirror. All methods may be called from any
// goroutine, AddSegment and Exchange from one at a time.
type Plan struct {
	mu       sync.Mutex
	segments []*segmentPlan          // of the mirror, by number; nil: no counter of the segment is in use
	records  map[uint32]*sourceBlock // of latency counters, by index
	pairs    []backend.Pair          // scratch memory for one block
	sampled  []int64                 // scratch memory for one block
	marks    markedSources
	live     liveView

	sources int    // number of counters that have a source
	changed int64  // time of the last cycle that found another value, or of the last new source
	added   func() // is called when a counter has a source after a time in which none was new; nil: not

	historyPeriod int64 // in ns; 0: no history
	nextHistory   int64 // time of the next records
}

// segmentPlan is one segment of the mirror. A segment of records has no blocks.
type segmentPlan struct {
	blocks  []blockPlan
	history []historyState // by slot
}

// historyState is the state of a counter whose history is kept. Its handle has generation 0 if the counter
// is not in use.
type historyState struct {
	handle  shm.Handle
	written backend.Pair // in the newest record of the history ring
	record  shm.Value    // published value of a latency counter, which has no row
}

// NewPlan returns a plan without counters. A history period of 0 writes no history.
func NewPlan(history time.Duration) *Plan {
	return &Plan{
		historyPeriod: int64(history),
		records:       make(map[uint32]*sourceBlock),
		pairs:         make([]backend.Pair, blockSize),
		sampled:       make([]int64, blockSize),
	}
}

// SetHistoryPeriod changes the time between two records of a counter in the history ring; 0 writes no history.
func (p *Plan) SetHistoryPeriod(period time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.historyPeriod = int64(period)
	p.nextHistory = 0 // with the next cycle
}

// AddSegment makes room for the counters of h's segment, unless there is room already. latency says
// that the segment holds latency counters. The segment is allocated before the lock is taken, so
// that no cycle waits for it.
func (p *Plan) AddSegment(h shm.Handle, latency bool) {
	segments := p.segmentsWith(h, latency)
	p.mu.Lock()
	p.segments = segments
	p.mu.Unlock()
}

// segmentsWith returns the segments with h's among them.
func (p *Plan) segmentsWith(h shm.Handle, latency bool) []*segmentPlan {
	n := int(h.Index / shm.SegmentLen)
	if n < len(p.segments) && p.segments[n] != nil {
		return p.segments
	}

	s := &segmentPlan{history: make([]historyState, shm.SegmentLen)}
	if !latency {
		s.blocks = make([]blockPlan, shm.SegmentLen/blockSize)
	}

	longer := append(make([]*segmentPlan, 0, n+1), p.segments...)
	for len(longer) <= n {
		longer = append(longer, nil)
	}
	longer[n] = s
	return longer
}

// activity returns the number of counters that have a source, and the time at which the last change was found: another
// value, or a new source.
func (p *Plan) activity() (sources int, changed int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sources, p.changed
}

// onAdded makes the plan call added, which does not wait, when a counter has a source after a time in which none was new.
func (p *Plan) onAdded(added func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.added = added
}

// block returns the block of index, or nil for a latency counter.
func (p *Plan) block(index uint32) *blockPlan {
	s := p.segments[index/shm.SegmentLen]
	if s.blocks == nil {
		return nil
	}
	return &s.blocks[index%shm.SegmentLen/blockSize]
}

// history returns the state of index.
func (p *Plan) history(index uint32) *historyState {
	return &p.segments[index/shm.SegmentLen].history[index%shm.SegmentLen]
}

// published returns the value that the mirror shows for index.
func (p *Plan) published(index uint32) shm.Value {
	if b := p.block(index); b != nil {
		return b.rows[index%blockSize]
	}
	return p.history(index).record
}

// RestoreValue makes v the value that cycles publish for index until SetSource names a source.
func (p *Plan) RestoreValue(index uint32, v shm.Value) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if b := p.block(index); b != nil {
		b.rows[index%blockSize] = v
	} else {
		p.history(index).record = v
	}
}

// SetSource makes cycles read h from counter id of s, and add base.
func (p *Plan) SetSource(h shm.Handle, s backend.Counters, id uint32, base backend.Pair) {
	p.mu.Lock()
	defer p.mu.Unlock()
	*p.history(h.Index) = historyState{handle: h, written: base, record: p.history(h.Index).record}
	p.setSource(h.Index, s, id, base)
}

// setSource is called with mu held.
func (p *Plan) setSource(index uint32, s backend.Counters, id uint32, base backend.Pair) {
	p.removeSource(index)
	p.live.show(p.history(index).handle, s, id, base)

	now := shm.Now()
	if p.added != nil && (p.sources == 0 || now-p.changed > int64(time.Second)) { // of many at once, the first tells
		p.added()
	}
	p.sources++
	p.changed = now

	bp := p.block(index)
	if bp == nil {
		b := newSourceBlock(s)
		b.ids = []uint32{id}
		b.base = []backend.Pair{base}
		p.records[index] = &b
		return
	}
	b := bp.of(p, s)
	b.insert(uint8(index%blockSize), id, base)
	bp.sourceChanged(b)
}

// Remove ends the publishing of index. Its row is absent from the next cycle on.
func (p *Plan) Remove(index uint32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.remove(index)
}

// remove is called with mu held.
func (p *Plan) remove(index uint32) {
	p.removeSource(index)
	p.live.show(p.history(index).handle, nil, 0, backend.Pair{})
	*p.history(index) = historyState{}
	if b := p.block(index); b != nil {
		b.rows[index%blockSize] = shm.Value{}
	}
}

// removeSource is called with mu held.
func (p *Plan) removeSource(index uint32) {
	bp := p.block(index)
	if bp == nil {
		if _, ok := p.records[index]; ok {
			p.sources--
			delete(p.records, index)
		}
		return
	}

	for i := range bp.sources {
		b := &bp.sources[i]
		if b.remove(uint8(index % blockSize)) {
			bp.sourceChanged(b)
			p.sources--
			return
		}
	}
}

// ShowLive makes the plan show in w which counters are counted in source, whose memory is map id in that epoch, from now
// on and as their sources change.
func (p *Plan) ShowLive(w LiveWriter, source backend.LiveCounters, id, epoch uint32) {
	p.mu.Lock()
	p.live = liveView{source: source, w: w, id: id, epoch: epoch}
	p.mu.Unlock()
	p.ShowLiveAgain()
}

// ShowLiveAgain shows all counters again, in a mirror that was made anew.
func (p *Plan) ShowLiveAgain() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.live.source == nil {
		return
	}
	for _, s := range p.segments {
		if s == nil {
			continue
		}
		for i := range s.history {
			h := s.history[i].handle
			if h.Generation == 0 {
				continue
			}
			if b, j := p.find(h.Index); b != nil {
				p.live.show(h, b.source, b.ids[j], b.base[j])
			}
		}
	}
}
