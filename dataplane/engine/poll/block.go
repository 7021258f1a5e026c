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

// run reads a block by one call: its counters are adjacent at one source that fills rows, and their rows
// are adjacent too. The zero run stands for a block that is read source by source.
type run struct {
	source backend.RowCounters
	first  uint32 // id of the first counter
	at, n  uint8  // first row, and the number of rows
}

// sourceBlock is the counters of one source in one block, or in one record. The slices run in
// parallel, in the order of the rows.
type sourceBlock struct {
	source backend.Counters
	timed  backend.TimedCounters // source, if it samples each value on its own; else nil
	rows   backend.RowCounters   // source, if it fills rows; else nil
	ids    []uint32              // at the source
	at     []uint8               // rows
	base   []backend.Pair        // total under earlier sources
	plain  bool                  // the rows are adjacent, and every base is 0
}

func newSourceBlock(s backend.Counters) sourceBlock {
	t, _ := s.(backend.TimedCounters)
	r, _ := s.(backend.RowCounters)
	return sourceBlock{source: s, timed: t, rows: r}
}

// of returns the counters of source s in the block.
func (bp *blockPlan) of(s backend.Counters) *sourceBlock {
	for i := range bp.sources {
		if bp.sources[i].source == s {
			return &bp.sources[i]
		}
	}
	bp.sources = append(bp.sources, newSourceBlock(s))
	return &bp.sources[len(bp.sources)-1]
}

// sourceChanged recomputes b.plain and the block's run after the counters of b have changed.
func (bp *blockPlan) sourceChanged(b *sourceBlock) {
	n := len(b.at)
	b.plain = n > 0 && int(b.at[n-1]-b.at[0]) == n-1 && !slices.ContainsFunc(b.base, func(p backend.Pair) bool { return p != backend.Pair{} })
	bp.run = run{}
	var only *sourceBlock
	for i := range bp.sources {
		switch {
		case len(bp.sources[i].ids) == 0:
		case only != nil:
			return
		default:
			only = &bp.sources[i]
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

// readBlock reads the sources of block number n into its rows. live is false if the block has no source.
func (p *Plan) readBlock(bp *blockPlan, n int, now int64) (live bool, failed error) {
	if r := &bp.run; r.source != nil {
		if err := r.source.ReadRows(r.first, bp.rows[r.at:][:r.n], now); err != nil {
			failed = fmt.Errorf("reading block %d from %s: %w", n, r.source.Name(), err)
		}
		return true, failed
	}
	for i := range bp.sources {
		b := &bp.sources[i]
		if len(b.ids) == 0 {
			continue
		}
		live = true
		pairs := p.pairs[:len(b.ids)]
		if err := b.read(pairs, p.sampled); err != nil {
			failed = errors.Join(failed, fmt.Errorf("reading block %d from %s: %w", n, b.source.Name(), err))
			continue
		}
		if b.timed != nil {
			bp.fillTimed(b, pairs, p.sampled)
		} else {
			bp.fill(b, pairs, now)
		}
	}
	return live, failed
}

// fill adds the bases and stores the totals in their rows. Most often the rows are
// adjacent and the bases 0. The lengths are pinned so that the loops carry no bounds check.
func (bp *blockPlan) fill(b *sourceBlock, pairs []backend.Pair, now int64) {
	if b.plain {
		rows := bp.rows[b.at[0]:][:len(pairs)]
		for j := range pairs {
			rows[j] = shm.Value{Packets: pairs[j].Packets, Bytes: pairs[j].Bytes, SampledAt: now}
		}
		return
	}
	at, base := b.at[:len(pairs)], b.base[:len(pairs)]
	for j := range pairs {
		bp.rows[at[j]%blockSize] = total(base[j], pairs[j], now)
	}
}
