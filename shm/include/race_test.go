package include

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/flowtally/flowtally/internal/lab/seed"
	"github.com/flowtally/flowtally/internal/lab/times"
	"github.com/flowtally/flowtally/shm"
)

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

// racer builds testdata/race.c with the sanitizers.
func racer(t *testing.T) (program string) {
	t.Helper()
	return build(t, "race", "-pthread", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
}

// race runs a program that racer has built.
func race(t *testing.T, program, mode, path string, times int, more ...string) (out string) {
	t.Helper()
	out = strings.TrimSpace(run(t, program, append([]string{mode, path, fmt.Sprint(times), fmt.Sprint(seed.Uint64(t) >> 1)}, more...)...))
	t.Log(out)
	return out
}

// A hostile writer keeps changing words of the header and of the catalogue, while a reader opens
// the file and afterwards. The reader must not fault: it copies the header once, and uses the copy.
func TestCSurvivesAHeaderThatKeepsChanging(t *testing.T) {
	small, w := newMirror(t, shm.Options{History: 2})
	h := add(t, w, shm.Entry{Name: "c17"})
	w.BeginCycle()
	w.PublishBlock(0, &shm.Block{value(1)})
	w.AppendHistory(h, value(1))
	w.EndCycle(shm.Now())
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	program := racer(t)
	opens := times.Of(t, "FLOWTALLY_RACE_OPENS", 1e5, 2000)
	for _, tt := range []struct {
		name, path string
		opens      int
		every      string
	}{
		{"many opens of a small file", small, opens, "500"},
		{"every function over three segments", raced(t), max(opens/500, 500), "8"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for end := time.Now().Add(time.Minute); ; { // the thread that changes words may not have run in time
				out := race(t, program, "header", tt.path, tt.opens, tt.every)
				var opens, opened, raced, hits int
				if _, err := fmt.Sscanf(out, "opens %d opened %d raced %d hits %d", &opens, &opened, &raced, &hits); err != nil {
					t.Fatal(err)
				}
				switch {
				case opened >= opens/20 && opened < opens && raced >= opens/1000 && hits > 0:
					return
				case time.Now().After(end):
					t.Fatal("too few opens of one outcome, or beside a change, or a word that never changed")
				}
			}
		})
	}
}

// A file is cut short while each function runs. In a program that called ft_guard_sigbus the
// function must return, and no signal may end the program.
func TestCSurvivesTruncationInEveryFunction(t *testing.T) {
	race(t, racer(t), "cut", raced(t), times.Of(t, "FLOWTALLY_RACE_CUTS", 100, 10))
}

// Threads that meet a new segment at the same time must share one mapping of it, and ft_close must leave none.
func TestThreadsShareOneMappingOfASegment(t *testing.T) {
	race(t, racer(t), "meet", raced(t), times.Of(t, "FLOWTALLY_RACE_MEETINGS", 1000, 100))
}
