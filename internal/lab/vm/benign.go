package vm

import (
	"regexp"
	"strings"
)

// benign are the lines of the kernel's log at warning or above that a machine may have: regular expressions of
// whole lines.
var benign = []struct {
	release string // of the kernels that write it, their beginning; "": all
	line    string
	why     string
}{
	{"", `mtrr: your CPUs had inconsistent (fixed MTRR|variable MTRR|MTRRdefType) settings`, "QEMU has no firmware that gives the second CPU the registers of the first"},
	{"6.1.", `acpi PNP0A03:00: fail to add MMCONFIG information, can't access extended PCI configuration space under this bridge\.`, "QEMU's default machine has no PCI Express"},
	{"", `acpi PNP0A03:00: fail to add MMCONFIG information, can't access extended configuration space under this bridge`, "as above"},
	{"6.12.", `amd_pstate: the _CPC object is not present in SBIOS or ACPI disabled`, "an emulated CPU has no power states"},

	// rxe writes a line for each call or operation that it refuses, and the tests make such ones on purpose.
	{"6.12.", `rxe0: qp#\d+ rxe_modify_qp: returned err = -22`, "a call that lacks an attribute"},
	{"6.12.", `rxe0: qp#\d+ make_send_cqe: non-flush error status = 10`, "an operation that the other side refuses: IBV_WC_REM_ACCESS_ERR"},
	{"6.12.", `rxe0: rxe_create_qp: returned err = -95`, "a raw queue pair, which rxe does not have"},
	{"6.12.", `infiniband rxe0: ib_query_port failed \(-19\)`, "the device is removed while its port is read"},

	// The emulated clocks are late while the host has other work.
	{"", `tsc: Unable to calibrate against PIT`, "the kernel calibrates against another clock"},
	{"", `APIC calibration not consistent with PM-Timer: \d+ms instead of 100ms`, "the kernel takes the timer's value"},
	{"6.1.", `Unstable clock detected, switching default tracing clock to "global"\\x0aIf you want to keep using the local clock, then add:\\x0a  "trace_clock=local"\\x0aon the kernel command line`, "only traces have that clock"},
	{"", `hpet: Lost \d+ RTC interrupts`, "nothing waits for them"},
	{"", `hrtimer: interrupt took \d+ ns`, "the host ran something else meanwhile"},
}

// Benign says whether a machine with that kernel may have the line.
func (l Log) Benign(release string) bool {
	for _, b := range benign {
		if strings.HasPrefix(release, b.release) && regexp.MustCompile("^(?:"+b.line+")$").MatchString(l.Text) {
			return true
		}
	}
	return false
}
