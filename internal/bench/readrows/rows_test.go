package readrows

import (
	"os"
	"strings"
	"testing"

	"github.com/flowtally/flowtally/internal/bench"
	"github.com/flowtally/flowtally/internal/bench/rowtest"
	"github.com/flowtally/flowtally/internal/lab/need"
)

func TestRowsAreMeasured(t *testing.T) {
	if _, err := os.Stat("/dev/shm"); err != nil {
		need.Missing(t, "shm", err.Error())
	}
	rowtest.Measure(t, Rows())
}

// A side that reads other values than were written has no figure.
func TestOtherSumEndsTheRow(t *testing.T) {
	side := reading(bench.ThreadCPU, func() (uint64, error) { return total() - 1, nil })
	if _, err := side(t.Context(), 1); err == nil || !strings.Contains(err.Error(), "packets were read") {
		t.Errorf("got %v", err)
	}
}
