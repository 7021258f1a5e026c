//go:build vm

package vm

import (
	"os/exec"
	"testing"
)

// TestProtocolsOfTheKernelAreCounted runs flows of SCTP and AH against headers that the kernel writes.
func TestProtocolsOfTheKernelAreCounted(t *testing.T) {
	b := newBoot(t, linux612, "veth", "sctp", "ah4", "xfrm_user", "crypto_null")
	ip, err := exec.LookPath("ip")
	if err != nil {
		t.Fatal(err)
	}
	b.program(t, ip)
	b.tests(t, "engine", "./dataplane/engine", "TestKernelSCTPIsCountedByPortAndTag|TestKernelAHIsCountedBySPI")
	report(t, b.run(t), "engine")
}
