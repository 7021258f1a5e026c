//go:build vm

package vm

import (
	"testing"

	"github.com/flowtally/flowtally/internal/lab/times"
)

// TestLinux61CountsIngressExactly runs on the oldest supported kernel: ingress counting, checked by that kernel's
// verifier. The flavour for clouds has every module that this needs and is the smallest. It is also
// a host without libibverbs.
func TestLinux61CountsIngressExactly(t *testing.T) {
	b := newBoot(t, linux61, "veth")
	b.flowtally(t)
	b.tests(t, "guest", "./internal/lab/vm/guest", "TestIngressAloneIsExactAndEgressIsRefused|TestDoctorBelow66NamesTheMissingFeature|TestWithoutLibibverbsProgramsRunAndNameIt")
	b.tests(t, "xdp", "./xdp", "TestProgramsCallOnlyHarmlessFunctions|TestVerifierWorkOfTheMostMasksIsBounded|TestVerifierWorkOfAllLayersIsBounded|TestBufferOfManySegmentsCountsEachSegment|TestReusedSlotStartsAtZero|TestErrorsMatchTheirSentinels|TestUnfinishedPinsAreMadeAgainAndForeignOnesRefused|TestTablesHoldAndFindTheMostExactRules|TestEachFieldIsLookedUpInASet|TestTheMostSetsOfAPacketLoadAndOneMoreIsRefused")
	b.tests(t, "engine-xdp", "./dataplane/engine/xdp", "TestXDPCountsWhatTheLinearMatcherNames", "FLOWTALLY_SETS="+times.Brief("25", "10"))
	b.tests(t, "engine", "./dataplane/engine", "TestSentIsCounted|TestTheKernelCountsWhileNobodyPolls")
	res := b.run(t)
	report(t, res, "guest")
	report(t, res, "xdp")
	report(t, res, "engine-xdp")
	report(t, res, "engine")
}
