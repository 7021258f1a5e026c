// Package rowtest tests rows of the bench as rows: that they can be opened and measured, and say why when they are not.
// `make bench-short` holds the bounds, not a test: a machine that runs tests is not idle.
package rowtest

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/flowtally/flowtally/internal/bench"
	"github.com/flowtally/flowtally/internal/lab/need"
)

// Programs returns the directory of the built programs, for rows that run them. Without one it skips the test.
func Programs(t *testing.T) string {
	t.Helper()
	bin := os.Getenv("FLOWTALLY_BIN")
	if bin == "" {
		need.Missing(t, "programs", "FLOWTALLY_BIN does not say where they are")
	}
	return bin
}

// NotInBenchShort returns the rows that no other step of .ci/run opens. `make bench-short` fails where it cannot open one
// of the others, so a test need not open those once more. With FLOWTALLY_STRESS set it returns all rows. Without a row
// to open it skips the test.
func NotInBenchShort(t *testing.T, rows []bench.Row) []bench.Row {
	t.Helper()
	if os.Getenv("FLOWTALLY_STRESS") != "" {
		return rows
	}
	rows = slices.DeleteFunc(rows, func(r bench.Row) bool { return !r.Full })
	if len(rows) == 0 {
		t.Skip("make bench-short opens these rows; FLOWTALLY_STRESS=1 opens them here")
	}
	return rows
}

// Measure measures rows once in the short form. A row may lack figures for noise, and for a reason that holds one of
// allowed.
func Measure(t *testing.T, rows []bench.Row, allowed ...string) {
	t.Helper()
	options := bench.Short()
	options.Attempts, options.Confirm, options.Anywhere = 1, 0, true
	report, err := bench.Run(t.Context(), rows, options)
	if err != nil {
		t.Fatal(err)
	}
	allowed = append(allowed, "noise: ", "row took too long: ", bench.ErrDisturbed.Error())
	for _, r := range report.Results {
		if r.Ratio != nil {
			if !r.Noisy && (*r.Ours <= 0 || *r.RefNS <= 0) {
				t.Errorf("%s: %v ns against %v ns", r.Name, *r.Ours, *r.RefNS)
			}
			t.Logf("%s: %.2f ns, %.2f times %s", r.Name, *r.Ours, *r.Ratio, r.Ref)
			continue
		}
		known := false
		for _, reason := range allowed {
			known = known || strings.Contains(r.Reason, reason)
		}
		if !known {
			t.Errorf("%s: %s", r.Name, r.Reason)
		} else {
			t.Logf("%s: %s", r.Name, r.Reason)
		}
	}
}
