package poll

import (
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/shm"
)

// total returns the total of a counter over all its sources. The sums wrap around on purpose: a base is negative,
// modulo 2^64, if its source counted packets that the total includes already.
func total(base, own backend.Pair, at int64) shm.Value {
	return shm.Value{Packets: base.Packets + own.Packets, Bytes: base.Bytes + own.Bytes, SampledAt: at}
}

// read fills pairs. It fills sampled only if each value of the source has its own sample time.
func (b *sourceBlock) read(pairs []backend.Pair, sampled []int64) error {
	if b.timed != nil {
		return b.timed.ReadTimed(b.ids, pairs, sampled[:len(pairs)])
	}
	return b.source.Read(b.ids, pairs)
}

// fillTimed is fill for values with their own sample times. It skips values that are not newer than the published ones.
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

// newer reports whether v may replace the published value: v was sampled, and is neither older nor smaller.
// When a flow moves to a device, the device's first samples may be smaller than the last value of the old
// source. That value then stays published until the device has caught up, so no total ever falls.
func newer(v, published shm.Value) bool {
	return v.SampledAt != 0 && v.SampledAt >= published.SampledAt && v.Packets >= published.Packets
}
