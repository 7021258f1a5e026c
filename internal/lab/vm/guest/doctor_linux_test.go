//go:build vm

package guest

import (
	"strings"
	"testing"
)

// TestDoctorSeesRXE: doctor finds the device by its name and its netdev. For each missing feature
// it prints the reason and the fix, from the distribution's own library.
func TestDoctorSeesRXE(t *testing.T) {
	newPair(t, "v0")
	addRXE(t, "rxe0", "v0")
	answered := make(map[string]bool)
	for _, c := range doctor(t) {
		if !strings.Contains(c.Object, "rxe0") {
			continue
		}
		t.Logf("%+v", c)
		answered[c.Feature] = true
		if !strings.Contains(c.Object, "v0") {
			t.Errorf("%q does not name the netdev", c.Object)
		}
		switch c.Feature {
		case "flows", "flow counters", "completion counters":
			if c.Answer != "no" || c.Reason == "" || c.Fix == "" {
				t.Errorf("%s: %+v; want a no with reason and fix", c.Feature, c)
			}
		}
	}
	for _, f := range []string{"flows", "flow counters", "completion counters"} {
		if !answered[f] {
			t.Errorf("doctor says nothing about %s of rxe0", f)
		}
	}
}
