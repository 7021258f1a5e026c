package seed_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/flowtally/flowtally/internal/lab/seed"
)

// recorder stands in for the test that draws.
type recorder struct {
	testing.TB
	log, fatal string
}

func (r *recorder) Helper()                         {}
func (r *recorder) Logf(format string, args ...any) { r.log += fmt.Sprintf(format, args...) }
func (r *recorder) Fatalf(format string, args ...any) {
	r.fatal = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

func draw(t *testing.T, env string) (s uint64, r *recorder) {
	t.Setenv(seed.Env, env)
	r = &recorder{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		s = seed.Uint64(r)
	}()
	<-done
	return s, r
}

func TestSeedIsThatOfTheEnvironmentOrNewAndIsLogged(t *testing.T) {
	if s, r := draw(t, "18446744073709551615"); s != 1<<64-1 || r.log != "FLOWTALLY_SEED=18446744073709551615" {
		t.Errorf("drew %d, logged %q", s, r.log)
	}
	first, r := draw(t, "")
	if r.log != fmt.Sprintf("FLOWTALLY_SEED=%d", first) {
		t.Errorf("drew %d, logged %q", first, r.log)
	}
	if second, _ := draw(t, ""); second == first {
		t.Errorf("two draws from the clock are both %d", first)
	}
	if _, r := draw(t, "today"); !strings.Contains(r.fatal, `FLOWTALLY_SEED="today"`) {
		t.Errorf("a seed that is no number: fatal %q", r.fatal)
	}
}

func TestOneSeedRepeatsTheSequence(t *testing.T) {
	t.Setenv(seed.Env, "7")
	if a, b := seed.Rand(t).Uint64(), seed.Rand(t).Uint64(); a != b {
		t.Errorf("one seed, two sequences: %d and %d", a, b)
	}
}
