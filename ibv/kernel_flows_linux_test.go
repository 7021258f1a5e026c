//go:build releases && cgo

package ibv

import (
	"testing"

	"github.com/flowtally/flowtally/ibv/ibvtest"
	"github.com/flowtally/flowtally/internal/lab/rdmacore"
)

// TestKernelDevX runs the tests of DevX counters and mlx5dv flows over the real libmlx5 of each release. Releases before
// 60 have no offsets in a bulk of counters, so they do not run the tests of offsets.
func TestKernelDevX(t *testing.T) {
	overKernel(t, ibvtest.Env{}, rdmacore.Suites(), func(t *testing.T) {
		overReal = true
		mlx5 := must(loadMLX5("the release", Options{}))(t)
		offsets := mlx5.offsets()
		mlx5.unload()
		run := 0
		for _, c := range []struct {
			name    string
			test    func(*testing.T)
			offsets bool
		}{
			{"counter flow", TestDevXCounterFlow, false},
			{"drop", TestDevXDropAction, false},
			{"shared counter", TestDevXSharedCounter, false},
			{"same match", TestDevXSameMatch, false},
			{"matchers", TestDevXMatchers, false},
			{"every field", TestDevXEveryField, false},
			{"firmware fails", TestDevXFirmwareFails, false},
			{"egress", TestDevXEgress, false},
			{"counters outlive flows", TestDevXCountersOutliveFlows, false},
			{"bulk", TestDevXBulkFlow, true},
			{"refusals", TestDevXRefusals, true},
			{"async", TestDevXAsyncQuery, false},
			{"async queries do not mix", TestDevXAsyncQueriesDoNotMix, false},
			{"async queries are bounded", TestDevXAsyncQueriesAreBounded, false},
			{"async query fails", TestDevXAsyncQueryFails, false},
			{"async next ends", TestDevXAsyncNextEnds, false},
		} {
			if c.offsets && !offsets {
				continue
			}
			t.Run(c.name, c.test)
			run++
		}
		t.Logf("%d tests; offsets in bulks: %v", run, offsets)
	})
}
