//go:build releases && cgo

package ibv

import (
	"slices"
	"testing"

	"github.com/flowtally/flowtally/ibv/ibvtest"
	"github.com/flowtally/flowtally/internal/lab/rdmacore"
)

// Reference 002: PREFER_CACHED prefers "reading the values from driver cache, else it will do volatile hardware access".
// mlx5 has no such cache, so that no value tells whether the flag arrives: the driver of this kernel has one. A read
// without the flag fills it.
func TestKernelPreferCachedReadsTheCacheOfTheDriver(t *testing.T) {
	overKernel(t, ibvtest.Env{Mutant: "read_cache"}, rdmacore.Suites(), func(t *testing.T) {
		overReal = true
		b := newBench(t, newWire(t), "")
		n := b.counters(both...)
		b.flow(n, b.toUs())
		b.send(frame100(b), 2)
		b.wants(n, 2, 200)

		b.send(frame100(b), 3)
		for _, c := range []struct {
			read  string
			flags ReadFlags
			want  []uint64
		}{
			{"preferring the cache", ReadCountersPreferCached, []uint64{2, 200}},
			{"from the hardware", 0, []uint64{5, 500}},
			{"preferring the cache that the last read has filled", ReadCountersPreferCached, []uint64{5, 500}},
		} {
			got := make([]uint64, 2)
			b.check(n.Read(got, c.flags))
			if !slices.Equal(got, c.want) {
				t.Errorf("a read %s returns %d, want %d", c.read, got, c.want)
			}
		}
	})
}
