package poll

import (
	"slices"

	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/shm"
)

// find returns the source of index, and its place there, or nil. It is called with mu held.
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

// ChangeSource changes the source of h between two cycles. decide gets the total of now, which includes
// one more sample if the present source can be read. It returns the next source, the id there and the base.
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

// AddMissed adds the result of decide to the total of h. decide gets the total of h's last sample, and
// the time of that sample.
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

// Hold ends the reading of h. Cycles publish its last value until h has a source again.
func (p *Plan) Hold(h shm.Handle) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.removeSource(h.Index)
	p.live.show(h, nil, 0, backend.Pair{})
}

// currentTotal returns the total of index: the greater of a new sample and the published value. It is
// called with mu held.
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

// sample reads counter i of b. at is now, or the time at which the source sampled it; 0 if the source
// has no sample yet. It is called with mu held.
func (p *Plan) sample(b *sourceBlock, i int) (own backend.Pair, at int64, err error) {
	one := sourceBlock{source: b.source, timed: b.timed, ids: b.ids[i : i+1]}
	p.sampled[0] = shm.Now()
	err = one.read(p.pairs[:1], p.sampled)
	return p.pairs[0], p.sampled[0], err
}

// Exchange calls exchange, which replaces the counters old in the mirror, and gives the source and the value of old[i] to the
// i-th new counter where goesOn[i]. It does so between two cycles, so that each cycle finds a total under the counter that is
// in the mirror. Cycles publish nothing for the old counters afterwards. A mirror that grows for the exchange keeps the next
// cycle waiting.
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

// move gives the source and the value of from to the counter to. It is called with mu held.
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
