//go:build vm

package vm

import (
	"os/exec"
	"testing"
)

// TestTunnelsOfTheKernelAreCountedInside runs the flows inside tunnels against headers that the kernel's own devices write.
func TestTunnelsOfTheKernelAreCountedInside(t *testing.T) {
	b := newBoot(t, linux612, "veth", "vxlan", "ip_gre", "ipip", "sit", "ip6_tunnel", "geneve", "gtp")
	ip, err := exec.LookPath("ip")
	if err != nil {
		t.Fatal(err)
	}
	b.program(t, ip)
	b.tests(t, "engine", "./dataplane/engine", "TestKernelTunnelsAreCountedInside")
	report(t, b.run(t), "engine")
}
