package poll

import (
	"errors"
	"fmt"

	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/shm"
)

// Publisher is the part of shm.Writer that a cycle uses.
type Publisher interface {
	BeginCycle() uint64
	PublishBlock(block int, values *shm.Block)
	PublishRecord(index uint32, v shm.Value)
	AppendHistory(h shm.Handle, v shm.Value)
	EndCycle(now int64)
}

// Cycle reads all counters and publishes them under one cycle number, sampled at now. A block whose
// source cannot be read keeps its last values and their sample times, so that readers see its age. The
// error names each such block and its source.
func (p *Plan) Cycle(w Publisher, now int64) error {
	p.mu.Lock()
	defer p.mu.Unlock()

	w.BeginCycle()
	p.marks.read(now) // before every counter: if one changes after this, its mark differs in the next cycle, which reads it

	failed := p.publishBlocks(w, now)
	for index, b := range p.records {
		if err := p.publishRecord(w, index, b, now); err != nil {
			failed = errors.Join(failed, err)
		}
	}

	if p.historyPeriod > 0 && now >= p.nextHistory {
		p.nextHistory = now + p.historyPeriod
		p.appendHistory(w)
	}
	w.EndCycle(now)
	return failed
}

// publishBlocks reads and publishes each block that has a source.
func (p *Plan) publishBlocks(w Publisher, now int64) (failed error) {
	for n, s := range p.segments {
		if s == nil {
			continue
		}
		for i := range s.blocks {
			block := n*(shm.SegmentLen/blockSize) + i
			live, err := p.readBlock(&s.blocks[i], block, now)
			if err != nil {
				failed = errors.Join(failed, err)
			}
			if live {
				w.PublishBlock(block, &s.blocks[i].rows)
			}
		}
	}
	return failed
}

// publishRecord reads and publishes a latency counter.
func (p *Plan) publishRecord(w Publisher, index uint32, b *sourceBlock, now int64) error {
	pairs := p.pairs[:1]
	p.sampled[0] = now
	if err := b.read(pairs, p.sampled); err != nil {
		return fmt.Errorf("reading record %d from %s: %w", index, b.source.Name(), err)
	}

	v := total(b.base[0], pairs[0], p.sampled[0])
	h := p.history(index)
	if b.timed != nil && !newer(v, h.record) {
		return nil
	}
	if v.Packets != h.record.Packets || v.Bytes != h.record.Bytes {
		p.changed = now
	}
	h.record = v
	w.PublishRecord(index, v)
	return nil
}

// appendHistory writes each counter changed since the last call to the history ring. It runs once a history
// period, not once a cycle: if c counters change all the time, a ring of n records then reaches back n/c periods.
func (p *Plan) appendHistory(w Publisher) {
	for _, s := range p.segments {
		if s == nil {
			continue
		}
		for i := range s.history {
			h := &s.history[i]
			if h.handle.Generation == 0 {
				continue
			}
			v := p.published(h.handle.Index)
			if own := (backend.Pair{Packets: v.Packets, Bytes: v.Bytes}); own != h.written {
				h.written = own
				w.AppendHistory(h.handle, v)
			}
		}
	}
}
