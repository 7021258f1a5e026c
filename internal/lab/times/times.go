// Package times says how often a long test repeats its step, so that one variable of the
// environment makes a short run of it long.
package times

import (
	"os"
	"strconv"
	"testing"
)

// Brief returns brief with -short, and usual otherwise.
func Brief[T any](usual, brief T) T {
	if testing.Short() {
		return brief
	}
	return usual
}

// Of returns the number in the environment variable of that name, such as 1e6. Without the variable it returns brief
// under -short, and usual otherwise.
func Of(t testing.TB, variable string, usual, brief int) int {
	t.Helper()
	if text := os.Getenv(variable); text != "" {
		n, err := strconv.ParseFloat(text, 64)
		if err != nil || !(n >= 1 && n <= 1e15) {
			t.Fatalf("%s=%q: want a number from 1 to 1e15", variable, text)
		}
		return int(n)
	}
	return Brief(usual, brief)
}
