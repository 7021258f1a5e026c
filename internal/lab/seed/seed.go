// Package seed gives a randomised test a seed that can be repeated: the
// variable FLOWTALLY_SEED, or the clock; whichever it was is in the test's log
// as FLOWTALLY_SEED=N.
package seed

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"
)

// Env names the variable that repeats a run.
const Env = "FLOWTALLY_SEED"

// Uint64 returns the seed and logs it. A variable that holds no number ends the
// test: a run that was to be repeated would not be.
func Uint64(t testing.TB) uint64 {
	t.Helper()
	s := uint64(time.Now().UnixNano())
	if text := os.Getenv(Env); text != "" {
		var err error
		if s, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("%s=%q: a seed is a whole number: %v", Env, text, err)
		}
	}
	t.Logf("%s=%d", Env, s)
	return s
}

// Rand returns a source of numbers from the seed, which is logged.
func Rand(t testing.TB) *rand.Rand {
	t.Helper()
	return rand.New(rand.NewPCG(Uint64(t), 0))
}
