//go:build vm

package vm

import "testing"

// TestLinux61FindsMembersOfSets loads the programs of bpf/members.h alone on the oldest supported kernel.
func TestLinux61FindsMembersOfSets(t *testing.T) {
	onlyLong(t) // TestLinux61CountsIngressExactly has the programs of rules that ask sets
	b := newBoot(t, linux61)
	b.tests(t, "xdprows", "./internal/bench/xdprows", "TestProgramsFindWhatPrefixesCoverAfterEachChange")
	report(t, b.run(t), "xdprows")
}
