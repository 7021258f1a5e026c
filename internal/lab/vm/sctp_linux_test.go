//go:build vm

package vm

import (
	"errors"
	"regexp"
	"testing"
)

// TestPullCrashesLinux612 shows what the programs of flowtally did to the kernel until they stopped to pull: a program
// of TCX egress that only calls bpf_skb_pull_data ends the machine as soon as a buffer of SCTP leaves it. In the
// same machine the stream arrives whole behind an empty program, and behind flowtally's.
func TestPullCrashesLinux612(t *testing.T) {
	console, err := pulled(t, linux612)
	if err == nil {
		t.Fatal("the machine did not crash: the test shows nothing")
	}
	if !regexp.MustCompile(`kernel BUG at net/core/skbuff\.c:\d+!`).MatchString(console) || !regexp.MustCompile(`RIP: .*:skb_segment\+`).MatchString(console) {
		t.Errorf("the machine ended without a BUG in skb_segment: %v\n%s", err, console)
	}
}

// TestPullOnTheNewestKernel says whether the newest kernel has mended it.
func TestPullOnTheNewestKernel(t *testing.T) {
	console, err := pulled(t, newest)
	if err == nil {
		t.Log("the machine survives a program that pulls")
		return
	}
	t.Logf("a program that pulls crashes the machine: %s", regexp.MustCompile(`kernel BUG at .*|BUG: .*|RIP: 0010.*`).FindAllString(console, 2))
}

// pulled runs the stream behind each program, that which pulls last, and returns the console and how the machine
// crashed.
func pulled(t *testing.T, kernel line) (console string, crash error) {
	t.Helper()
	b := newBoot(t, kernel, "veth", "sctp")
	b.cpus = 1
	const test = "TestSCTPLeavesWhole"
	bin := b.compile(t, "guest", "./internal/lab/vm/guest", test)
	for _, p := range []string{"empty", "flowtally", "pull"} {
		b.step(p, bin, test, "FLOWTALLY_GUEST_PROGRAM="+p)
	}
	res, console, err := b.runToItsEnd(t)
	if res == nil {
		t.Fatal(err)
	}
	checkLog(t, res) // of the steps before the crash
	report(t, res, "empty")
	report(t, res, "flowtally")
	if err == nil {
		report(t, res, "pull")
	} else if !errors.Is(err, ErrIncomplete) {
		t.Fatal(err)
	}
	return console, err
}
