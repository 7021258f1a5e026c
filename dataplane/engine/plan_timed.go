package engine

import (
	"slices"

	"github.com/flowtally/flowtally/shm"
)

// total is what a counter has reached over all its sources. Bases wrap around: one that
// makes up for what a source saw too much of is below zero.
func total(base, own Pair, at int64) shm.Value {
	return shm.Value{Packets: base.Packets + own.Packets, Bytes: base.Bytes + own.Bytes, SampledAt: at}
}

// read fills pairs, and sampled where the values have times of their own.
func (f *feed) read(pairs []Pair, sampled []int64) error {
	if f.timed != nil {
		return f.timed.ReadTimed(f.ids, pairs, sampled[:len(pairs)])
	}
	return f.backend.Read(f.ids, pairs)
}

// fillTimed is fill for values that were sampled one by one.
func (bp *blockPlan) fillTimed(f *feed, pairs []Pair, sampled []int64) {
	for j := range pairs {
		row := &bp.rows[f.at[j]%blockSize]
		if v := total(f.base[j], pairs[j], sampled[j]); newer(v, *row) {
			*row = v
		}
	}
}

// newer says whether a sample takes the place of what is shown: it was taken, and
// not before that. A total that moved to a device shows the last value of its source before
// until the device has caught up with it, so that no total ever falls.
func newer(v, shown shm.Value) bool {
	return v.SampledAt != 0 && v.SampledAt >= shown.SampledAt && v.Packets >= shown.Packets
}

// find is the feed of index and its place in it, or nil. It is called with mu held.
func (p *plan) find(index uint32) (*feed, int) {
	if index >= p.counters {
		return p.records[index], 0
	}
	bp := &p.blocks[index/blockSize]
	for i := range bp.feeds {
		if j, ok := slices.BinarySearch(bp.feeds[i].at, uint8(index%blockSize)); ok {
			return &bp.feeds[i], j
		}
	}
	return nil, 0
}

// move changes the source of h between two cycles. decide gets the total as it
// stands, read once more if its source can be read, and names the next source and its base.
func (p *plan) move(h shm.Handle, decide func(stands Pair) (Backend, uint32, Pair, error)) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	b, id, base, err := decide(p.stands(h.Index))
	if err != nil {
		return err
	}
	p.feed(h.Index, b, id, base)
	return nil
}

// align adds to a total what decide says that it lacks, given what it stands at by its
// last sample, and when that was taken.
func (p *plan) align(h shm.Handle, decide func(stands Pair, sampled int64) (lacks Pair)) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	f, i := p.find(h.Index)
	if f == nil {
		return nil
	}
	one := feed{backend: f.backend, timed: f.timed, ids: f.ids[i : i+1]}
	p.sampled[0] = shm.Now()
	if err := one.read(p.pairs[:1], p.sampled); err != nil {
		return err
	}
	f.base[i] = add(f.base[i], decide(add(f.base[i], p.pairs[0]), p.sampled[0]))
	if len(f.at) > 0 { // a record has no rows
		f.settle()
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
func (p *plan) stands(index uint32) Pair {
	var shown shm.Value
	if index < p.counters {
		shown = *p.row(index)
	} else {
		shown = p.tracked[index].now
	}
	f, i := p.find(index)
	if f == nil {
		return Pair{Packets: shown.Packets, Bytes: shown.Bytes}
	}
	one := feed{backend: f.backend, timed: f.timed, ids: f.ids[i : i+1]}
	p.sampled[0] = shm.Now()
	if err := one.read(p.pairs[:1], p.sampled); err == nil && p.sampled[0] != 0 {
		if v := total(f.base[i], p.pairs[0], p.sampled[0]); v.Packets >= shown.Packets {
			shown = v
		}
	}
	return Pair{Packets: shown.Packets, Bytes: shown.Bytes}
}
