package poll

import (
	"sync"
	"time"

	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/shm"
)

// blockSize is the number of counters that one call of PublishBlock publishes.
const blockSize = shm.BlockLen

// Plan knows the source and the base of every counter of the mirror. Any goroutine may call its methods, but
// callers must not run AddSegment and Exchange concurrently.
type Plan struct {
	mu       sync.Mutex
	segments []*segmentPlan          // by number in the mirror; nil: no counter of the segment is in use
	records  map[uint32]*sourceBlock // of latency counters, by index
	pairs    []backend.Pair          // scratch memory for one block
	sampled  []int64                 // scratch memory for one block
	marks    markedSources
	live     liveView

	sources int    // number of counters that have a source
	changed int64  // when a cycle last found a changed value, or a counter last got a source
	added   func() // see onAdded; may be nil

	historyPeriod int64 // in ns; 0: no history
	nextHistory   int64 // time of the next records
}

// segmentPlan is one segment of the mirror. A segment of records has no blocks.
type segmentPlan struct {
	blocks  []blockPlan
	history []historyState // by slot
}

// historyState is what the history needs to know about a slot. If the slot has no counter, the generation of its
// handle is 0.
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

// SetHistoryPeriod changes the time between two records of a counter in the history ring. 0 ends the history.
func (p *Plan) SetHistoryPeriod(period time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.historyPeriod = int64(period)
	p.nextHistory = 0 // with the next cycle
}

// AddSegment adds h's segment to the plan, unless the plan has it. latency must be true for a segment of
// latency counters. AddSegment allocates before it locks, so no cycle waits for the allocation.
func (p *Plan) AddSegment(h shm.Handle, latency bool) {
	segments := p.segmentsWith(h, latency)
	p.mu.Lock()
	p.segments = segments
	p.mu.Unlock()
}

// segmentsWith returns the segments of the plan, including h's.
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

// activity returns the number of counters with a source, and the time of the last change: a changed value or a new source.
func (p *Plan) activity() (sources int, changed int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sources, p.changed
}

// onAdded makes the plan call added when a counter gets a source and none did in the second before. The poller then starts
// a cycle at once instead of waiting for the end of an idle period. added must not block: the plan is locked.
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

// history returns the history state of index.
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

// RestoreValue makes cycles publish v for index until SetSource names a source.
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

// setSource is SetSource for a counter that has a history state. The caller holds mu.
func (p *Plan) setSource(index uint32, s backend.Counters, id uint32, base backend.Pair) {
	p.removeSource(index)
	p.live.show(p.history(index).handle, s, id, base)

	now := shm.Now()
	if p.added != nil && (p.sources == 0 || now-p.changed > int64(time.Second)) { // of many at once, only the first calls
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
	b := bp.countersOf(p, s)
	b.insert(uint8(index%blockSize), id, base)
	bp.sourceChanged(b)
}

// Remove removes the counter of index from the plan. The next cycle publishes an absent value in its row.
func (p *Plan) Remove(index uint32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.remove(index)
}

// remove is Remove. The caller holds mu.
func (p *Plan) remove(index uint32) {
	p.removeSource(index)
	p.live.show(p.history(index).handle, nil, 0, backend.Pair{})
	*p.history(index) = historyState{}
	if b := p.block(index); b != nil {
		b.rows[index%blockSize] = shm.Value{}
	}
}

// removeSource makes cycles stop reading index; its value stays. The caller holds mu.
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

// ShowLive tells readers, through w, which counters source counts and in which slots, now and whenever a counter's source
// changes. id and epoch are those of the map in which source counts.
func (p *Plan) ShowLive(w LiveWriter, source backend.LiveCounters, id, epoch uint32) {
	p.mu.Lock()
	p.live = liveView{source: source, w: w, id: id, epoch: epoch}
	p.mu.Unlock()
	p.ShowLiveAgain()
}

// ShowLiveAgain repeats ShowLive for all counters, in a mirror that was made anew.
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
