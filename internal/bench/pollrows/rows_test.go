package pollrows

import (
	"strings"
	"testing"

	"github.com/flowtally/flowtally/internal/bench"
	"github.com/flowtally/flowtally/internal/lab/need"
)

// The row can be opened and measured. Its bound is held by `flowtally bench
// --gate`, not here: a machine that runs tests is not idle.
func TestRowIsMeasured(t *testing.T) {
	need.BPF(t)
	options := bench.Short()
	options.Attempts = 1
	report, err := bench.Run(t.Context(), Rows(), options)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range report.Results {
		switch {
		case r.Ratio != nil:
			if *r.Ours <= 0 || *r.RefNS <= 0 {
				t.Errorf("%s: %v ns against %v ns", r.Name, *r.Ours, *r.RefNS)
			}
			t.Logf("%s: %.0f ns, %.2f times %s", r.Name, *r.Ours, *r.Ratio, r.Ref)
		case strings.HasPrefix(r.Reason, "noise: "), strings.HasPrefix(r.Reason, "row took too long: "):
			t.Logf("%s: %s", r.Name, r.Reason)
		default:
			t.Errorf("%s: %s", r.Name, r.Reason)
		}
	}
}
