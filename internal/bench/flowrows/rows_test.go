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
	// TestHookRowsAreMeasured has fewer interfaces, and the rows of 10,000 flows stand for those of 100,000.
	rows := slices.DeleteFunc(Rows(bin), func(r bench.Row) bool { return r.Full })
	rowtest.Measure(t, rows)
}

// The rows of 240 interfaces take minutes. They differ from these in the number alone.
func TestHookRowsAreMeasured(t *testing.T) {
	need.BPF(t)
	need.Netns(t)
	s := &site{made: make(map[kind]pair)}
	rows := slices.DeleteFunc(s.hookRows(12, 4), func(r bench.Row) bool {
		return strings.HasPrefix(r.Name, "hooks.idle.") // a minute of looking on
	})
	rowtest.Measure(t, rows)
}
