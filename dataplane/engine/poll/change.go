package poll

import (
	"slices"

	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/shm"
)

// find returns the source of index, and the place of the counter in it. It returns nil without a source. The caller holds mu.
func (p *Plan) find(index uint32) (*sourceBlock, int) {
	bp := p.block(index)
	if bp == nil {
		return p.records[index], 0
	}
	for i := range bp.sources {
		if j, ok := slices.BinarySearch(bp.sources[i].at, uint8(index%blockSize)); ok {
			return &bp.sources[i], j
		}
	}
	return nil, 0
}

// ChangeSource changes the source of h between two cycles. It calls decide with the current total, which includes
// one more sample if the old source can still be read. decide returns the new source, the id there and the base.
// If decide fails, the source does not change.
func (p *Plan) ChangeSource(h shm.Handle, decide func(total backend.Pair) (backend.Counters, uint32, backend.Pair, error)) error {
	p.mu.Lock()
	defer p.mu.Unlock()

	s, id, base, err := decide(p.currentTotal(h.Index))
	if err != nil {
		return err
	}
	p.setSource(h.Index, s, id, base)
	return nil
}

// AddMissed adds packets to the total of h that its source missed. It calls decide with the total and the
// time of h's last sample, and decide returns the missed packets.
func (p *Plan) AddMissed(h shm.Handle, decide func(total backend.Pair, sampled int64) (missed backend.Pair)) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	b, i := p.find(h.Index)
	if b == nil {
		return nil
	}
	own, at, err := p.sample(b, i)
	if err != nil {
		return err
	}

	b.base[i] = backend.Add(b.base[i], decide(backend.Add(b.base[i], own), at))
	p.live.show(h, b.source, b.ids[i], b.base[i])
	if bp := p.block(h.Index); bp != nil { // a record has no rows
		bp.sourceChanged(b)
	}
	return nil
}

// StopReading removes the source of h. Cycles publish the last value until SetSource or ChangeSource names another source.
func (p *Plan) StopReading(h shm.Handle) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.removeSource(h.Index)
	p.live.show(h, nil, 0, backend.Pair{})
}

// currentTotal returns the total of index: the greater of a new sample and the published value. The caller
// holds mu.
func (p *Plan) currentTotal(index uint32) backend.Pair {
	v := p.published(index)
	if b, i := p.find(index); b != nil {
		if own, at, err := p.sample(b, i); err == nil && at != 0 {
			if now := total(b.base[i], own, at); now.Packets >= v.Packets {
				v = now
			}
		}
	}
	return backend.Pair{Packets: v.Packets, Bytes: v.Bytes}
}

// sample reads counter i of b. at is the current time, or the source's own sample time; 0 if the source has
// no sample yet. The caller holds mu.
func (p *Plan) sample(b *sourceBlock, i int) (own backend.Pair, at int64, err error) {
	one := sourceBlock{source: b.source, timed: b.timed, ids: b.ids[i : i+1]}
	p.sampled[0] = shm.Now()
	err = one.read(p.pairs[:1], p.sampled)
	return p.pairs[0], p.sampled[0], err
}

// Exchange calls exchange, which must replace the counters old in the mirror by entries (shm.Writer.Exchange). Where goesOn[i],
// the new counter i inherits the source and the value of old[i]. All of this happens between two cycles, because a cycle that
// came in between would publish a total under a handle that is gone. Cycles publish nothing for the old counters afterwards.
// If the mirror must grow first, the next cycle waits: call shm.Writer.Reserve before.
func (p *Plan) Exchange(old []shm.Handle, entries []shm.Entry, goesOn []bool, exchange func([]shm.Handle, []shm.Entry, []bool) ([]shm.Handle, error)) ([]shm.Handle, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fresh, err := exchange(old, entries, goesOn)
	for i, h := range fresh {
		p.segments = p.segmentsWith(h, entries[i].Latency)
		if goesOn[i] {
			p.move(old[i], h)
		} else {
			p.remove(old[i].Index)
		}
	}
	return fresh, err
}

// move moves the source and the value of one counter to another. The caller holds mu.
func (p *Plan) move(from, to shm.Handle) {
	value := p.published(from.Index)
	*p.history(to.Index) = historyState{
		handle:  to,
		written: p.history(from.Index).written,
		record:  value,
	}
	if b, i := p.find(from.Index); b != nil {
		p.setSource(to.Index, b.source, b.ids[i], b.base[i])
	}
	p.remove(from.Index)
	if b := p.block(to.Index); b != nil {
		b.rows[to.Index%blockSize] = value
	}
}
