package flowrows

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/flowtally/flowtally/internal/bench"
	"github.com/flowtally/flowtally/internal/bench/rowtest"
	"github.com/flowtally/flowtally/internal/lab/need"
)

func TestRowsAreMeasured(t *testing.T) {
	need.BPF(t)
	need.Netns(t)
	bin := os.Getenv("FLOWTALLY_BIN")
	if bin == "" {
		need.Missing(t, "programs", "FLOWTALLY_BIN does not say where they are")
	}
	rows := slices.DeleteFunc(Rows(bin), func(r bench.Row) bool {
		return strings.HasPrefix(r.Name, "hooks.") && r.Name != "hooks.start.240" // the others open the same instances, for minutes
	})
	rowtest.Measure(t, rows)
}
