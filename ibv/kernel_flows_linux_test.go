//go:build releases && cgo

package ibv

import (
	"slices"
	"testing"

	"github.com/flowtally/flowtally/ibv/ibvtest"
	"github.com/flowtally/flowtally/internal/lab/rdmacore"
)

// userSpace are the statements of the references that the kernel does not see: libmlx5 alone returns their errno, and it
// fails by no order of ours.
var userSpace = map[string]string{
	"000:105": "attaching makes no call of the kernel, and libmlx5 has memory enough",
}

// TestKernelReferences shows each statement of the references 000 to 002 over the real libibverbs and libmlx5 of each
// release.
func TestKernelReferences(t *testing.T) {
	overKernel(t, ibvtest.Env{}, rdmacore.Suites(), func(t *testing.T) {
		overReal = true
		wire := newWire(t)
		shown := 0
		for _, s := range slices.Concat(attachStatements, createStatements, readStatements) {
			t.Run(s.at, func(t *testing.T) {
				if why := userSpace[s.at]; why != "" {
					t.Logf("not shown: %s", why)
					return
				}
				t.Log(s.says)
				s.shows(t, newBench(t, wire, "", s.env...))
				shown++
			})
		}
		t.Logf("shown: %d statements", shown)
	})
}

// TestKernelSuites runs the tests that are translated from rdma-core's over the real libraries of each release.
func TestKernelSuites(t *testing.T) {
	overKernel(t, ibvtest.Env{}, rdmacore.Suites(), func(t *testing.T) {
		overReal = true
		t.Run("specs", TestSpecFlowTraffic)
		t.Run("counter", TestCounterQPFlow)
		t.Run("counters", TestCountersBulkFlow)
		t.Run("drop", TestDropCounterAction)
		t.Run("shared counter", TestReuseAction)
		t.Run("sampler", TestSampler)
		t.Run("priority", TestPriorityTraffic)
		t.Run("hit and miss", TestHitAndMiss)
		t.Run("egress", TestEgressFlow)
		t.Run("refusals", TestFlowRefusals)
	})
}

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
