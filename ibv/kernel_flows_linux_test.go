//go:build releases && cgo

package ibv

import (
	"slices"
	"syscall"
	"testing"

	"github.com/flowtally/flowtally/ibv/ibvtest"
	"github.com/flowtally/flowtally/internal/lab/rdmacore"
)

// Each statement of the references 000 to 002 is shown over the real libibverbs and libmlx5 of each release.
func TestKernelFlowsFollowTheirManualPages(t *testing.T) {
	overKernel(t, ibvtest.Env{}, rdmacore.Suites(), func(t *testing.T) {
		wire := newWire(t)
		shown := 0
		for _, s := range slices.Concat(attachStatements, createStatements, readStatements) {
			t.Run(s.at, func(t *testing.T) {
				if why := userSpace[s.at]; why != "" {
					t.Logf("not shown: %s", why)
					return
				}
				t.Log(s.says)
				s.shows(t, newBench(t, wire, s.env...))
				shown++
			})
		}
		t.Logf("shown: %d statements", shown)
	})
}

// The tests translated from rdma-core run over the real libraries of each release.
func TestKernelPassesTheSuitesOfRDMACore(t *testing.T) {
	overKernel(t, ibvtest.Env{}, rdmacore.Suites(), func(t *testing.T) {
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
		t.Run("no attached point", TestCountersRefusedWithoutAPointCountAfterAttach)
	})
}

// capabilityPages asks for the pages that rdma-core's tests and libmlx5 ask for. The tests leave room for 0x800 bytes.
func capabilityPages(t *testing.T) {
	b := newDevXBench(t)
	for page, want := range map[uint16]syscall.Errno{hcaCapGeneral: 0, 0x01: 0, 0x07: 0, hcaCap2: 0, 0x7f: syscall.EREMOTEIO} {
		in := must(encodePRM(nil, prmInSize, &queryHCACapIn{Type: page}))(t)
		for size, want := range map[int]syscall.Errno{0x1010: want, 0x810: want, 0x800: syscall.EREMOTEIO} {
			if errno := b.dx.m.generalCmd(b.dx.h, in, make([]byte, size)); errno != want {
				t.Errorf("page %#x with room for %#x bytes: %v, want %v", page, size, errno, want)
			}
		}
	}
}

// DevX counters and mlx5dv flows run over the real libmlx5 of each release. Releases before 60 have no offsets in a
// bulk of counters, so they skip the tests of offsets.
func TestKernelDevXCountsFlows(t *testing.T) {
	overKernel(t, ibvtest.Env{}, rdmacore.Suites(), func(t *testing.T) {
		mlx5 := must(loadMLX5("the release", Options{}))(t)
		offsets := mlx5.offsets()
		mlx5.unload()
		run := 0
		for _, c := range []struct {
			name    string
			test    func(*testing.T)
			offsets bool
		}{
			{"capabilities", capabilityPages, false},
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
