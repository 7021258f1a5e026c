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
	run     run // next to rows, because a cycle with cold caches loads both
	sources []sourceBlock
	rows    shm.Block
}

// run reads a block in few calls. It requires that all counters of the block come from one source with marks, and that
// both their ids and their rows are adjacent. The zero run means to read source by source instead.
type run struct {
	source *marked  // the block's only source
	seen   []uint32 // the marks at the last read of the rows
	first  uint32   // id of the first counter
	at, n  uint8    // first row, and the number of rows
	known  bool     // all rows were read since the plan last changed
}

// sourceBlock lists the counters of one source in one block, or in one record. The slices are parallel and
// ordered by row.
type sourceBlock struct {
	source backend.Counters
	timed  backend.TimedCounters // the same source, if each of its values has its own sample time; else nil
	marked *marked               // the same source, if it has marks; else nil
	spans  []span                // one for each mark; empty unless the source has marks and the block has no run
	ids    []uint32              // at the source
	at     []uint8               // rows
	base   []backend.Pair        // total counted by earlier sources
	plain  bool                  // the rows are adjacent, and every base is 0
}

func newSourceBlock(s backend.Counters) sourceBlock {
	t, _ := s.(backend.TimedCounters)
	return sourceBlock{source: s, timed: t}
}

// insert adds a counter of the source.
func (b *sourceBlock) insert(row uint8, id uint32, base backend.Pair) {
	i, _ := slices.BinarySearch(b.at, row)
	b.ids = slices.Insert(b.ids, i, id)
	b.at = slices.Insert(b.at, i, row)
	b.base = slices.Insert(b.base, i, base)
}

// remove removes the counter of a row, and reports whether this source had it.
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

// countersOf returns the counters of source s in the block. It adds s to the block if it is new there.
func (bp *blockPlan) countersOf(p *Plan, s backend.Counters) *sourceBlock {
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

// sourceChanged recomputes what depends on the counters of b: b.plain, and the run or the spans of the block.
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

// readBlock reads the sources of block number n into its rows. live is false if the block has no source. If a source fails,
// its rows keep their values and sample times.
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
		if b.marked.unchanged(s) {
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

// fill adds the bases to pairs, stores the totals in their rows, and reports whether a total changed.
func (bp *blockPlan) fill(at []uint8, base, pairs []backend.Pair, now int64) (changed bool) {
	at, base = at[:len(pairs)], base[:len(pairs)] // lets the compiler drop the bounds checks of the loop
	differ := uint64(0)
	for j := range pairs {
		row, v := &bp.rows[at[j]%blockSize], total(base[j], pairs[j], now)
		differ |= row.Packets ^ v.Packets | row.Bytes ^ v.Bytes
		*row = v
	}
	return differ != 0
}
