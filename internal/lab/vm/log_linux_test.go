//go:build vm

package vm

import "testing"

// checkLog fails on every line of the kernel's log at warning or above that is not benign.
func checkLog(t *testing.T, res *Result) {
	t.Helper()
	for _, l := range res.Log {
		if !l.Benign(res.Release) {
			t.Errorf("kernel %s after step %q, level %d: %s", res.Release, l.Step, l.Level, l.Text)
		}
	}
}
