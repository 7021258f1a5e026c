package engine

import (
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/shm"
)

// total is what a counter has reached over all its sources. Bases wrap around: one that
// makes up for what a source saw too much of is below zero.
func total(base, own backend.Pair, at int64) shm.Value {
	return shm.Value{Packets: base.Packets + own.Packets, Bytes: base.Bytes + own.Bytes, SampledAt: at}
}

// read fills pairs, and sampled where the values have times of their own.
func (f *feed) read(pairs []backend.Pair, sampled []int64) error {
	if f.timed != nil {
		return f.timed.ReadTimed(f.ids, pairs, sampled[:len(pairs)])
	}
	return f.source.Read(f.ids, pairs)
}

// fillTimed is fill for values that were sampled one by one.
func (bp *blockPlan) fillTimed(f *feed, pairs []backend.Pair, sampled []int64) {
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
