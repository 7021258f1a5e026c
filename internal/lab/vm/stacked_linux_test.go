//go:build vm

package vm

import (
	"os/exec"
	"testing"
)

// TestStackedInterfacesCountAsTheConditionsSay runs the conditions of stacked interfaces and of IPsec against the
// kernel's own devices: which of them let a packet pass the hooks of two interfaces, or of one twice.
func TestStackedInterfacesCountAsTheConditionsSay(t *testing.T) {
	b := newBoot(t, linux612, "veth", "bridge", "bonding", "8021q", "macvlan", "ipvlan", "vxlan", "ip_gre", "ipip", "vrf",
		"xfrm_user", "xfrm_interface", "esp4", "esp4_offload", "authenc", "crypto_null")
	ip, err := exec.LookPath("ip")
	if err != nil {
		t.Fatal(err)
	}
	b.program(t, ip)
	b.tests(t, "engine", "./dataplane/engine", "TestStackedInterfacesCountTwice|TestIPsecCountsTwice")
	report(t, b.run(t), "engine")
}
