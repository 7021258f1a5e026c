package include

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/flowtally/flowtally/internal/lab/seed"
	"github.com/flowtally/flowtally/shm"
)

// stressed is n, or the number that a variable says, for long runs.
func stressed(t *testing.T, variable string, n int) string {
	t.Helper()
	if text := os.Getenv(variable); text != "" {
		f, err := strconv.ParseFloat(text, 64) // "1e6" reads well
		if err != nil || f < 1 {
			t.Fatalf("%s=%q is no number", variable, text)
		}
		n = int(f)
	} else if testing.Short() {
		n /= 10
	}
	return fmt.Sprint(n)
}

// raced makes a mirror of three segments, without a writer.
func raced(t *testing.T) (path string) {
	t.Helper()
	path, w := newMirror(t, shm.Options{History: 32, CoolDown: time.Millisecond})
	furnish(t, w)
	for i := range shm.SegmentLen {
		add(t, w, shm.Entry{Name: fmt.Sprint("more ", i)})
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

func race(t *testing.T, args ...string) (out string) {
	t.Helper()
	program := build(t, "race", "-pthread", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
	out = strings.TrimSpace(run(t, program, append(args, fmt.Sprint(seed.Uint64(t)>>1))...))
	t.Log(out)
	return out
}

// Words of the header that change while a reader opens the file, and afterwards, lead it
// nowhere: what it takes from the header it copies once.
func TestHeaderRacesInC(t *testing.T) {
	out := race(t, "header", raced(t), stressed(t, "FLOWTALLY_RACE_OPENS", 5000))
	var opens, opened, flips int
	if _, err := fmt.Sscanf(out, "opens %d opened %d flips %d", &opens, &opened, &flips); err != nil || opened < opens/2 || flips < 10 {
		t.Errorf("too few opens or changes: %v", err)
	}
}

// A file that is cut short while every function runs makes results, and no signal, of a
// program that asked for the guard.
func TestTruncationRacesInC(t *testing.T) {
	race(t, "cut", raced(t), stressed(t, "FLOWTALLY_RACE_CUTS", 100))
}

// Threads that meet a segment at the same time use one mapping of it, and ft_close leaves none.
func TestThreadsMeetTheSameSegments(t *testing.T) {
	race(t, "meet", raced(t), stressed(t, "FLOWTALLY_RACE_MEETINGS", 1000))
}
