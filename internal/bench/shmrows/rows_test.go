package shmrows

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/flowtally/flowtally/internal/bench"
	"github.com/flowtally/flowtally/internal/lab/need"
)

// Every row can be opened and measured, leaves nothing behind, and says why
// when it is null. Bounds are held by `flowtally bench --gate`, not here: a
// machine that runs tests is not idle.
func TestRowsAreMeasured(t *testing.T) {
	need.Tool(t, "cc")
	options := bench.Short()
	options.Attempts = 1
	report, err := bench.Run(t.Context(), Rows(), options)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range report.Results {
		switch {
		case r.Ratio != nil:
			if *r.Ours <= 0 || *r.RefNS <= 0 {
				t.Errorf("%s: %v ns against %v ns", r.Name, *r.Ours, *r.RefNS)
			}
			t.Logf("%s: %.2f ns, %.2f times %s", r.Name, *r.Ours, *r.Ratio, r.Ref)
		case strings.HasPrefix(r.Reason, "noise: "), strings.HasPrefix(r.Reason, "row took too long: "), strings.Contains(r.Reason, bench.ErrDisturbed.Error()),
			strings.Contains(r.Reason, errOneCPU.Error()):
			t.Logf("%s: %s", r.Name, r.Reason)
		default:
			t.Errorf("%s: %s", r.Name, r.Reason)
		}
	}
	if left := mirrors(t); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func mirrors(t *testing.T) []string {
	t.Helper()
	if _, err := os.Stat("/dev/shm"); err != nil {
		need.Missing(t, "shm", err.Error())
	}
	list, err := filepath.Glob(fmt.Sprintf("/dev/shm/flowtally-bench-%d-*", os.Getpid()))
	if err != nil {
		t.Fatal(err)
	}
	return list
}
