package shmrows

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/flowtally/flowtally/internal/bench/rowtest"
	"github.com/flowtally/flowtally/internal/bench/twocpu"
	"github.com/flowtally/flowtally/internal/lab/need"
)

// Every row is measured, and leaves nothing behind.
func TestRowsAreMeasured(t *testing.T) {
	need.Tool(t, "cc")
	if _, err := os.Stat("/dev/shm"); err != nil {
		need.Missing(t, "shm", err.Error())
	}
	rowtest.Measure(t, rowtest.NotInBenchShort(t, Rows()), twocpu.OneCPU().Error(), "not supported: not root")
	left, err := filepath.Glob(fmt.Sprintf("/dev/shm/flowtally-bench-%d-*", os.Getpid()))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
