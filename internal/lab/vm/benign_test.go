package vm

import "testing"

// TestBenignLinesAreWhole: a line with more in it is not benign, and neither is one of another kernel.
func TestBenignLinesAreWhole(t *testing.T) {
	for _, c := range []struct {
		release, line string
		want          bool
	}{
		{"6.12.1", "hrtimer: interrupt took 4711 ns", true},
		{"6.12.1", "hrtimer: interrupt took 4711 ns, and more", false},
		{"6.12.1", "amd_pstate: the _CPC object is not present in SBIOS or ACPI disabled", true},
		{"7.3.4", "amd_pstate: the _CPC object is not present in SBIOS or ACPI disabled", false},
		{"6.1.0", `Unstable clock detected, switching default tracing clock to "global"\x0aIf you want to keep using the local clock, then add:\x0a  "trace_clock=local"\x0aon the kernel command line`, true},
		{"6.12.1", "WARNING: CPU: 0 PID: 144 at include/linux/skbuff.h:3265 skb_trim+0x38/0x40", false},
	} {
		if got := (Log{Level: Warning, Text: c.line}).Benign(c.release); got != c.want {
			t.Errorf("%s: %q: %t, want %t", c.release, c.line, got, c.want)
		}
	}
}
