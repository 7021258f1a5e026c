//go:build vm

package vm

import (
	"errors"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// observeModules are the traffic of TestTrafficPassesUnharmedAndIsCounted in the guest.
var observeModules = []string{
	"veth", "sctp", "8021q", "bonding", "ip_gre", "ipip", "geneve",
	"esp4", "xfrm_user", "authenc", "cbc", "hmac", "echainiv", "seqiv", "gcm", "ctr",
}

// No program of flowtally, in any mode, harms traffic that the kernel handles in other buffers than those
// of plain packets, and the counts are exact.
func TestTrafficIsUnharmedOnTheNewestKernel(t *testing.T) {
	observe(t, newest)
}

// TestTrafficIsUnharmedOnLinux61 has XDP alone.
func TestTrafficIsUnharmedOnLinux61(t *testing.T) { observe(t, linux61) }

func TestTrafficIsUnharmedOnLinux612(t *testing.T) {
	observe(t, linux612)
}

// Rows of TestTrafficPassesUnharmedAndIsCounted that it leaves out.
const (
	aborts  = "empty generic with frags/sctp, local"
	crashes = "empty generic/sctp, forwarded"
)

// TestEmptyGenericXDPHarmsSCTP612 shows why TestTrafficPassesUnharmedAndIsCounted leaves some rows of generic XDP out:
// an empty program harms them.
func TestEmptyGenericXDPHarmsSCTP612(t *testing.T) {
	res, console, err := harm(t, linux612)
	if s := res.Steps[aborts]; s == nil || !strings.Contains(string(s.Stdout), "connection abort") {
		t.Errorf("%s: the association was not aborted: %+v", aborts, s)
	}
	if !slices.ContainsFunc(res.Log, func(l Log) bool { return strings.Contains(l.Text, " skb_trim+") }) {
		t.Errorf("%s: no warning in skb_trim among %d lines of the kernel's log", aborts, len(res.Log))
	}
	if !errors.Is(err, ErrIncomplete) || !regexp.MustCompile(`RIP: .*:skb_segment\+`).MatchString(console) {
		t.Errorf("%s: the machine did not crash in skb_segment: %v", crashes, err)
	}
}

// TestEmptyGenericXDPOnTheNewestKernel says whether the newest kernel has mended it.
func TestEmptyGenericXDPOnTheNewestKernel(t *testing.T) {
	res, console, err := harm(t, newest)
	if s := res.Steps[aborts]; s != nil {
		t.Logf("%s: exit status %d, %d lines of the kernel's log", aborts, s.Code, len(res.Log))
	}
	t.Logf("%s: crashes %t: %s", crashes, errors.Is(err, ErrIncomplete), regexp.MustCompile(`BUG: .*|RIP: 0010:skb_segment.*`).FindAllString(console, 2))
}

func harm(t *testing.T, kernel line) (res *Result, console string, err error) {
	t.Helper()
	b := newBoot(t, kernel, observeModules...)
	b.cpus = 1 // as for observe
	bin := b.compile(t, "guest", "./internal/lab/vm/guest", "TestTrafficPassesUnharmedAndIsCounted")
	for _, row := range []string{aborts, crashes} {
		b.step(row, bin, "TestTrafficPassesUnharmedAndIsCounted", "FLOWTALLY_GUEST_ONLY=^"+row+"$", "FLOWTALLY_GUEST_HARM=1")
	}
	res, console, err = b.runToItsEnd(t)
	if res == nil {
		t.Fatal(err)
	}
	return res, console, err
}

func observe(t *testing.T, kernel line) {
	b := newBoot(t, kernel, observeModules...)
	b.xdpTools(t)
	b.cpus = 1 // QEMU's emulation of a second one runs code for a moment longer that the kernel has patched, as it does for XDP
	var chosen []string
	for _, name := range []string{"FLOWTALLY_GUEST_ONLY", "FLOWTALLY_GUEST_HARM"} { // of one who looks into a row
		chosen = append(chosen, name+"="+os.Getenv(name))
	}
	b.tests(t, "guest", "./internal/lab/vm/guest", "TestTrafficPassesUnharmedAndIsCounted", chosen...)
	report(t, b.run(t), "guest")
}
