package times_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/flowtally/flowtally/internal/lab/times"
)

const variable = "FLOWTALLY_TEST_TIMES"

// recorder stands in for the test that asks.
type recorder struct {
	testing.TB
	fatal string
}

func (*recorder) Helper() {}
func (r *recorder) Fatalf(format string, args ...any) {
	r.fatal = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

func TestTheVariableSetsTheNumberOfTimes(t *testing.T) {
	unset := 5
	if testing.Short() {
		unset = 2
	}
	for _, tt := range []struct {
		text  string
		want  int
		fatal bool
	}{{"", unset, false}, {"7", 7, false}, {"1e9", 1e9, false}, {"0", 0, true}, {"-1", 0, true}, {"many", 0, true}, {"NaN", 0, true}, {"1e300", 0, true}} {
		t.Run(tt.text, func(t *testing.T) {
			t.Setenv(variable, tt.text)
			r, got, done := &recorder{}, 0, make(chan struct{})
			go func() {
				defer close(done)
				got = times.Of(r, variable, 5, 2)
			}()
			<-done
			if got != tt.want || (r.fatal != "") != tt.fatal || tt.fatal && !strings.Contains(r.fatal, variable) {
				t.Errorf("%d, %q", got, r.fatal)
			}
		})
	}
}
