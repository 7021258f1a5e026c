package poll

import (
	"errors"
	"fmt"
	"slices"

	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/shm"
)

// blockPlan is one block: its published values and their sources.
type blockPlan struct {
	run     run // beside rows in memory, because a cold cycle loads both
	sources []sourceBlock
	rows    shm.Block
}

// run reads a block by few calls: its counters are adjacent at one source that fills rows, and their rows
// are adjacent too. The zero run stands for a block that is read source by source.
type run struct {
	source *marked  // the block's only source
	seen   []uint32 // marks of the counters under which the rows were read
	first  uint32   // id of the first counter
	at, n  uint8    // first row, and the number of rows
	known  bool     // all rows were read since the plan has changed
}

// sourceBlock is the counters of one source in one block, or in one record. The slices run in
// parallel, in the order of the rows.
type sourceBlock struct {
	source backend.Counters
	timed  backend.TimedCounters // source, if it samples each value on its own; else nil
	marked *marked               // source, if it has marks; else nil
	spans  []span                // of the counters, if the source has marks and the block has no run
	ids    []uint32              // at the source
	at     []uint8               // rows
	base   []backend.Pair        // total under earlier sources
	plain  bool                  // the rows are adjacent, and every base is 0
}

func newSourceBlock(s backend.Counters) sourceBlock {
	t, _ := s.(backend.TimedCounters)
	return sourceBlock{source: s, timed: t}
}

// insert adds counter id, whose row is row.
func (b *sourceBlock) insert(row uint8, id uint32, base backend.Pair) {
	i, _ := slices.BinarySearch(b.at, row)
	b.ids = slices.Insert(b.ids, i, id)
	b.at = slices.Insert(b.at, i, row)
	b.base = slices.Insert(b.base, i, base)
}

// remove removes the counter whose row is row, and reports whether it was there.
func (b *sourceBlock) remove(row uint8) bool {
	i, found := slices.BinarySearch(b.at, row)
	if !found {
		return false
	}
	b.ids = slices.Delete(b.ids, i, i+1)
	b.at = slices.Delete(b.at, i, i+1)
	b.base = slices.Delete(b.base, i, i+1)
	return true
}

// of returns the counters of source s in the block.
func (bp *blockPlan) of(p *Plan, s backend.Counters) *sourceBlock {
	for i := range bp.sources {
		if bp.sources[i].source == s {
			return &bp.sources[i]
		}
	}
	b := newSourceBlock(s)
	if r, ok := s.(backend.RowCounters); ok {
		b.marked = p.marks.of(r)
	}
	bp.sources = append(bp.sources, b)
	return &bp.sources[len(bp.sources)-1]
}

// sourceChanged recomputes b.plain, and the block's run or its spans, after the counters of b have changed.
func (bp *blockPlan) sourceChanged(b *sourceBlock) {
	b.plain = b.isPlain()
	if only := bp.only(); only != nil && only.marked != nil && only.plain && adjacent(only.ids) {
		bp.run = run{
			source: only.marked,
			seen:   only.marked.marksOf(bp.run.seen[:0], only.ids),
			first:  only.ids[0],
			at:     only.at[0],
			n:      uint8(len(only.ids)),
		}
		return
	}

	bp.run = run{}
	for i := range bp.sources {
		if b := &bp.sources[i]; b.marked != nil {
			b.spans = b.marked.spansOf(b.spans[:0], b.ids)
		}
	}
}

// isPlain reports whether the rows are adjacent and every base is 0.
func (b *sourceBlock) isPlain() bool {
	n := len(b.at)
	if n == 0 || int(b.at[n-1]-b.at[0]) != n-1 {
		return false
	}
	return !slices.ContainsFunc(b.base, func(p backend.Pair) bool { return p != backend.Pair{} })
}

// only returns the block's only source, or nil.
func (bp *blockPlan) only() (only *sourceBlock) {
	for i := range bp.sources {
		switch {
		case len(bp.sources[i].ids) == 0:
		case only != nil:
			return nil
		default:
			only = &bp.sources[i]
		}
	}
	return only
}

// adjacent reports whether each id follows the one before.
func adjacent(ids []uint32) bool {
	for i, id := range ids {
		if id != ids[0]+uint32(i) {
			return false
		}
	}
	return true
}

// readBlock reads the sources of block number n into its rows. live is false if the block has no source.
func (p *Plan) readBlock(bp *blockPlan, n int, now int64) (live bool, failed error) {
	if r := &bp.run; r.source != nil {
		changed, err := r.read(bp.rows[r.at:][:r.n], now)
		if changed {
			p.changed = now
		}
		if err != nil {
			err = fmt.Errorf("reading block %d from %s: %w", n, r.source.counters.Name(), err)
		}
		return true, err
	}

	for i := range bp.sources {
		b := &bp.sources[i]
		if len(b.ids) == 0 {
			continue
		}
		live = true
		changed, err := bp.readSource(p, b, now)
		if changed {
			p.changed = now
		}
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("reading block %d from %s: %w", n, b.source.Name(), err))
		}
	}
	return live, failed
}

// readSource reads the counters of b into their rows.
func (bp *blockPlan) readSource(p *Plan, b *sourceBlock, now int64) (changed bool, err error) {
	if b.marked == nil {
		pairs := p.pairs[:len(b.ids)]
		if err := b.read(pairs, p.sampled); err != nil {
			return false, err
		}
		if b.timed != nil {
			return bp.fillTimed(b, pairs, p.sampled), nil
		}
		return bp.fill(b.at, b.base, pairs, now), nil
	}

	for i := range b.spans {
		s := &b.spans[i]
		if b.marked.stands(s) {
			for _, row := range b.at[s.from:s.to] {
				bp.rows[row%blockSize].SampledAt = now
			}
			continue
		}
		pairs := p.pairs[:s.to-s.from]
		if err := b.source.Read(b.ids[s.from:s.to], pairs); err != nil {
			return changed, err
		}
		changed = b.marked.hasRead(s) || changed
		bp.fill(b.at[s.from:s.to], b.base[s.from:s.to], pairs, now)
	}
	return changed, nil
}

// fill adds the bases and stores the totals in their rows. changed says whether a total is another.
func (bp *blockPlan) fill(at []uint8, base, pairs []backend.Pair, now int64) (changed bool) {
	at, base = at[:len(pairs)], base[:len(pairs)] // so that the loop carries no bounds check
	differ := uint64(0)
	for j := range pairs {
		row, v := &bp.rows[at[j]%blockSize], total(base[j], pairs[j], now)
		differ |= row.Packets ^ v.Packets | row.Bytes ^ v.Bytes
		*row = v
	}
	return differ != 0
}
