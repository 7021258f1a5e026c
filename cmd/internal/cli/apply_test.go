package cli

import (
	"testing"

	"github.com/flowtally/flowtally/dataplane"
)

func TestOnlyAnApplyThatLeavesNoFlowAsks(t *testing.T) {
	gone := []string{"a", "b"}
	for name, c := range map[string]struct {
		d    dataplane.Difference
		asks bool
	}{
		"nothing":            {dataplane.Difference{}, false},
		"all go":             {dataplane.Difference{Removed: gone}, true},
		"others come":        {dataplane.Difference{Removed: gone, Added: []string{"c"}}, false},
		"one stays":          {dataplane.Difference{Removed: gone, Unchanged: 1}, false},
		"one stays, changed": {dataplane.Difference{Removed: gone, Changed: []dataplane.FlowChange{{Name: "c"}}}, false},
		"one stays, renamed": {dataplane.Difference{Removed: gone, Renamed: []dataplane.Rename{{From: "c", To: "d"}}}, false},
	} {
		if got := leavesNone(c.d); got != c.asks {
			t.Errorf("%s: asks %t, want %t", name, got, c.asks)
		}
	}
}
