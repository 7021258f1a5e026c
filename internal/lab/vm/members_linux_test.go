//go:build vm

package vm

import "testing"

// TestLinux61FindsMembersOfSets loads the programs of bpf/members.h and those of rules that ask sets on the oldest supported kernel.
func TestLinux61FindsMembersOfSets(t *testing.T) {
	b := newBoot(t, linux61)
	b.tests(t, "xdprows", "./internal/bench/xdprows", "TestProgramsFindWhatPrefixesCoverAfterEachChange")
	b.tests(t, "xdp", "./xdp", "TestEachFieldIsLookedUpInASet|TestTheMostSetsOfAPacketLoadAndOneMoreIsRefused")
	res := b.run(t)
	report(t, res, "xdprows")
	report(t, res, "xdp")
}
