package toprows

import (
	"testing"

	"github.com/flowtally/flowtally/internal/bench/rowtest"
)

func TestRowsAreMeasured(t *testing.T) {
	rowtest.Measure(t, rowtest.NotInBenchShort(t, Rows(rowtest.Programs(t))))
}
