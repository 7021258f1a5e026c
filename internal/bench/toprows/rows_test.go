package toprows

import (
	"os"
	"testing"

	"github.com/flowtally/flowtally/internal/bench"
	"github.com/flowtally/flowtally/internal/bench/rowtest"
)

func TestMain(m *testing.M) {
	if code, is := bench.FloorMain(Floors()); is {
		os.Exit(code)
	}
	os.Exit(m.Run())
}

func TestRowsAreMeasured(t *testing.T) {
	rowtest.Measure(t, rowtest.NotInBenchShort(t, Rows(rowtest.Programs(t))))
}
