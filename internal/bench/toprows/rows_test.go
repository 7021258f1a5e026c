package toprows

import (
	"os"
	"testing"

	"github.com/flowtally/flowtally/internal/bench/rowtest"
	"github.com/flowtally/flowtally/internal/lab/need"
)

func TestRowsAreMeasured(t *testing.T) {
	bin := os.Getenv("FLOWTALLY_BIN")
	if bin == "" {
		need.Missing(t, "programs", "FLOWTALLY_BIN does not say where they are")
	}
	rowtest.Measure(t, rowtest.NotInBenchShort(t, Rows(bin)))
}
