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

// Each statement of the references 000 to 002 is shown over the real libibverbs and libmlx5 of each release.
func TestKernelFlowsFollowTheirManualPages(t *testing.T) {
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

// The tests translated from rdma-core run over the real libraries of each release.
func TestKernelPassesTheSuitesOfRDMACore(t *testing.T) {
	overKernel(t, ibvtest.Env{}, rdmacore.Suites(), func(t *testing.T) {
		overReal = true
		t.Run("specs", TestSpecsCountExactlyTheirTraffic)
		t.Run("counter", TestFlowCounterEqualsTheSentPackets)
		t.Run("counters", TestCountersCountOnlyTheirOwnFlows)
		t.Run("drop", TestDropRuleCountsTheDroppedPackets)
		t.Run("shared counter", TestSharedCounterAddsUpItsRules)
		t.Run("sampler", TestDontTrapRuleAndTheNextRuleBothCount)
		t.Run("priority", TestLowerPriorityNumberTakesThePackets)
		t.Run("hit and miss", TestCounterCountsHitsAndNoMisses)
		t.Run("egress", TestEgressFlowCountsOnlySentPackets)
		t.Run("refusals", TestRefusedFlowsReturnTheErrnosOfTheKernel)
	})
}

// DevX counters and mlx5dv flows run over the real libmlx5 of each release. Releases before 60 have no offsets in a
// bulk of counters, so they skip the tests of offsets.
func TestKernelDevXCountsFlows(t *testing.T) {
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
			{"counter flow", TestDevXFlowCountsPacketsAndOctets, false},
			{"drop", TestDevXDropRuleCountsWhatItDrops, false},
			{"shared counter", TestDevXSharedCounterAddsUpItsRules, false},
			{"same match", TestDevXRulesOfOneMatchCountTogether, false},
			{"matchers", TestDevXMatchersSelectAllPacketsOrOneSource, false},
			{"every field", TestDevXMatchesEveryField, false},
			{"firmware fails", TestDevXFirmwareErrorConcernsOneObject, false},
			{"egress", TestDevXEgressCountsOnlySentPackets, false},
			{"counters outlive flows", TestDevXCountersOutliveFlows, false},
			{"bulk", TestDevXFlowsCountAtTheirOffsetsOfABulk, true},
			{"refusals", TestDevXRefusalsArriveUnchanged, true},
			{"async", TestDevXAsyncQueryReturnsItsIDAndCounts, false},
			{"async queries do not mix", TestDevXAsyncQueriesDoNotMix, false},
			{"async queries are bounded", TestDevXAsyncQueriesAreRefusedPastAMegabyte, false},
			{"async query fails", TestDevXAsyncQueryReturnsEveryCallsError, false},
			{"async next ends", TestDevXAsyncNextEndsWithItsContextAndWithClose, false},
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
