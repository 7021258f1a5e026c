package engine

import (
	"slices"

	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/shm"
)

// find is the feed of index and its place in it, or nil. It is called with mu held.
func (p *plan) find(index uint32) (*feed, int) {
	bp := p.block(index)
	if bp == nil {
		return p.records[index], 0
	}
	for i := range bp.feeds {
		if j, ok := slices.BinarySearch(bp.feeds[i].at, uint8(index%blockSize)); ok {
			return &bp.feeds[i], j
		}
	}
	return nil, 0
}

// move changes the source of h between two cycles. decide gets the total as it
// stands, read once more if its source can be read, and names the next source and its base.
func (p *plan) move(h shm.Handle, decide func(stands backend.Pair) (backend.Counters, uint32, backend.Pair, error)) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	s, id, base, err := decide(p.stands(h.Index))
	if err != nil {
		return err
	}
	p.feed(h.Index, s, id, base)
	return nil
}

// align adds to a total what decide says that it lacks, given what it stands at by its
// last sample, and when that was taken.
func (p *plan) align(h shm.Handle, decide func(stands backend.Pair, sampled int64) (lacks backend.Pair)) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	f, i := p.find(h.Index)
	if f == nil {
		return nil
	}
	own, at, err := p.sample(f, i)
	if err != nil {
		return err
	}
	f.base[i] = backend.Add(f.base[i], decide(backend.Add(f.base[i], own), at))
	if b := p.block(h.Index); b != nil { // a record has no rows
		b.settle(f)
	}
	return nil
}

// hold ends the reading of h's source; what is shown stays.
func (p *plan) hold(h shm.Handle) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.unset(h.Index)
}

// stands is the total that index has reached: what its source says, or what is shown where
// that is more. It is called with mu held.
func (p *plan) stands(index uint32) backend.Pair {
	shown := p.shown(index)
	if f, i := p.find(index); f != nil {
		if own, at, err := p.sample(f, i); err == nil && at != 0 {
			if v := total(f.base[i], own, at); v.Packets >= shown.Packets {
				shown = v
			}
		}
	}
	return backend.Pair{Packets: shown.Packets, Bytes: shown.Bytes}
}

// sample reads one value of a feed: as of now, or as of when the source sampled it; 0
// when it has not yet. It is called with mu held.
func (p *plan) sample(f *feed, i int) (own backend.Pair, at int64, err error) {
	one := feed{source: f.source, timed: f.timed, ids: f.ids[i : i+1]}
	p.sampled[0] = shm.Now()
	err = one.read(p.pairs[:1], p.sampled)
	return p.pairs[0], p.sampled[0], err
}
