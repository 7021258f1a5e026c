package pollrows

import (
	"os"
	"testing"

	"github.com/flowtally/flowtally/internal/bench"
	"github.com/flowtally/flowtally/internal/bench/rowtest"
	"github.com/flowtally/flowtally/internal/bench/twocpu"
	"github.com/flowtally/flowtally/internal/lab/need"
)

func TestMain(m *testing.M) {
	if code, is := bench.FloorMain(Floors()); is {
		os.Exit(code)
	}
	os.Exit(m.Run())
}

func TestRowsAreMeasured(t *testing.T) {
	need.BPF(t)
	rowtest.Measure(t, rowtest.NotInBenchShort(t, Rows()), twocpu.OneCPU().Error())
}
