package bench

import "testing"

func TestCoreNamesTheFamilyOfTheProcessor(t *testing.T) {
	for _, tt := range []struct {
		name, cpuinfo, want string
	}{
		{"a hypervisor that names no model", "vendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 207\nmodel name\t: Intel(R) Xeon(R) Processor\nstepping\t: 2\n", "Emerald Rapids"},
		{"two processors", "vendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 143\n\nvendor_id\t: other\n", "Sapphire Rapids"},
		{"a model that the stepping tells apart", "vendor_id : GenuineIntel\ncpu family : 6\nmodel : 85\nstepping : 4\n", "Skylake"},
		{"a later stepping", "vendor_id : GenuineIntel\ncpu family : 6\nmodel : 85\nstepping : 7\n", "Cascade Lake"},
		{"Milan", "vendor_id : AuthenticAMD\ncpu family : 25\nmodel : 1\n", "Zen 3"},
		{"Genoa", "vendor_id : AuthenticAMD\ncpu family : 25\nmodel : 17\n", "Zen 4"},
		{"Turin", "vendor_id : AuthenticAMD\ncpu family : 26\nmodel : 2\n", "Zen 5"},
		{"without a name", "vendor_id : AuthenticAMD\ncpu family : 26\nmodel : 80\n", "AuthenticAMD family 26 model 80"},
		{"arm64", "processor\t: 0\nCPU implementer\t: 0x41\nCPU architecture: 8\nCPU variant\t: 0x3\nCPU part\t: 0xd0c\n", "0x41 family 8 model 3340"},
		{"no cpuinfo", "", "amd64"},
	} {
		m := Machine{Arch: "amd64"}
		m.identify(tt.cpuinfo)
		if got := m.Core(); got != tt.want {
			t.Errorf("%s: %q, want %q: %+v", tt.name, got, tt.want, m)
		}
	}
}
