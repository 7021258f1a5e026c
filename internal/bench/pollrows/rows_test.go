package pollrows

import (
	"testing"

	"github.com/flowtally/flowtally/internal/bench/rowtest"
	"github.com/flowtally/flowtally/internal/bench/twocpu"
	"github.com/flowtally/flowtally/internal/lab/need"
)

func TestRowsAreMeasured(t *testing.T) {
	need.BPF(t)
	rowtest.Measure(t, rowtest.NotInBenchShort(t, Rows()), twocpu.OneCPU().Error())
}
