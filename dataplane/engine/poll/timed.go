package poll

import (
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/shm"
)

// total returns the total of a counter over all its sources. Bases wrap around: a base is below zero
// if its source counted packets that the total already had.
func total(base, own backend.Pair, at int64) shm.Value {
	return shm.Value{Packets: base.Packets + own.Packets, Bytes: base.Bytes + own.Bytes, SampledAt: at}
}

// read fills pairs. It fills sampled only if the source samples each value on its own.
func (b *sourceBlock) read(pairs []backend.Pair, sampled []int64) error {
	if b.timed != nil {
		return b.timed.ReadTimed(b.ids, pairs, sampled[:len(pairs)])
	}
	return b.source.Read(b.ids, pairs)
}

// fillTimed is fill for values that were sampled one by one.
func (bp *blockPlan) fillTimed(b *sourceBlock, pairs []backend.Pair, sampled []int64) (changed bool) {
	for j := range pairs {
		row := &bp.rows[b.at[j]%blockSize]
		if v := total(b.base[j], pairs[j], sampled[j]); newer(v, *row) {
			changed = changed || v.Packets != row.Packets || v.Bytes != row.Bytes
			*row = v
		}
	}
	return changed
}

// newer says whether sample v replaces the published value: v exists, and is
// neither older nor smaller. After a change of source to a device the last value of the earlier source
// stays published until the device has caught up with it, so that no total ever falls.
func newer(v, published shm.Value) bool {
	return v.SampledAt != 0 && v.SampledAt >= published.SampledAt && v.Packets >= published.Packets
}
