//go:build vm

package vm

import (
	"bytes"
	"regexp"
	"slices"
	"testing"
	"time"
)

// verdicts are the lines with which a test binary ends its top-level tests.
var verdicts = regexp.MustCompile(`(?m)^--- (PASS|FAIL|SKIP): (\S+) \(([0-9.]+)s\)$`)

// report makes the tests of one step tests of this run. Only those named may be
// skipped: a lane that skips shows nothing.
func report(t *testing.T, res *Result, step string, maySkip ...string) {
	t.Helper()
	s := res.Steps[step]
	if s == nil {
		t.Errorf("%s: the machine never ran it", step)
		return
	}
	seen := 0
	for _, m := range verdicts.FindAllSubmatch(s.Stdout, -1) {
		verdict, name := string(m[1]), string(m[2])
		seen++
		t.Run(step+"/"+name, func(t *testing.T) {
			t.Logf("%s inside the machine, %s s", verdict, m[3])
			switch {
			case verdict == "FAIL":
				t.Fail()
			case verdict == "SKIP" && !slices.Contains(maySkip, name):
				t.Error("skipped, and it is named to run")
			}
		})
	}
	if seen == 0 {
		t.Errorf("%s: no test ran", step)
	}
	if s.Code != 0 || s.Error != "" {
		t.Errorf("%s: exit status %d %s after %v", step, s.Code, s.Error, s.Took.Round(time.Millisecond))
	}
	if t.Failed() || testing.Verbose() {
		t.Logf("%s, %v:\n%s%s", step, s.Took.Round(time.Millisecond), bytes.TrimSpace(s.Stdout), s.Stderr)
	}
}
