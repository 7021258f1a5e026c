package bench

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/flowtally/flowtally/internal/lab/need"
)

// costs returns a probe whose costs follow a script, over and over.
func costs(list ...int64) func() (int64, error) {
	i := -1
	return func() (int64, error) {
		i++
		return list[i%len(list)], nil
	}
}

func TestFloorIsTheLowestCostThatManyProbesShare(t *testing.T) {
	for _, tt := range []struct {
		name  string
		costs []int64
		want  int64
	}{
		{"alone", []int64{1000, 1001, 1004}, 1000},
		{"company most of the time", []int64{1400, 1550, 1000, 1700, 1620, 1380, 1003}, 1000},
		{"one probe that cost nothing", append(make([]int64, 1), repeat(1000, 500)...), 1000},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // no time passes: the time for the search is not used up
				s := &stillness{probe: costs(tt.costs...)}
				if err := s.findFloor(t.Context()); err != nil || s.floor != tt.want {
					t.Errorf("floor %d, %v; want %d", s.floor, err, tt.want)
				}
			})
		})
	}
}

func repeat(v int64, n int) []int64 {
	list := make([]int64, n)
	for i := range list {
		list[i] = v
	}
	return list
}

func TestSideIsRunAgainUntilItWasAlone(t *testing.T) {
	// Three probes alone, then the side, then the probes after it: company all
	// the time after the first two runs.
	alone, shared := repeat(1000, 3), repeat(1500, warmUp)
	script := append(append(append(append(alone, shared...), alone...), shared...), append(alone, 1500, 1000)...)
	s := &stillness{floor: 1000, probe: costs(script...)}
	runs := 0
	side := func(context.Context, int) (float64, error) { runs++; return float64(runs), nil }
	if ns, err := s.run(t.Context(), side, 1); err != nil || ns != 3 || runs != 3 {
		t.Errorf("got run %v of %d, %v; want the third", ns, runs, err)
	}
}

func TestSideThatIsNeverAloneIsDisturbed(t *testing.T) {
	s := &stillness{floor: 1000, probe: costs(1500)}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	side := func(context.Context, int) (float64, error) { t.Error("ran on a shared core"); return 0, nil }
	if _, err := s.run(ctx, side, 1); !errors.Is(err, ErrDisturbed) {
		t.Errorf("got %v, want %v", err, ErrDisturbed)
	}
}

func TestFloorIsOnlyLowered(t *testing.T) {
	s := &stillness{floor: 1000, probe: costs(1500)}
	if err := s.findFloor(t.Context()); err != nil || s.floor != 1000 {
		t.Errorf("floor %d, %v; want 1000 as before", s.floor, err)
	}
	s.probe = costs(900)
	if err := s.findFloor(t.Context()); err != nil || s.floor != 900 {
		t.Errorf("floor %d, %v; want 900", s.floor, err)
	}
}

// oneOfTwoCPUs returns a CPU, and needs another one beside it. No affinity is the need "affinity".
func oneOfTwoCPUs(t *testing.T) int {
	t.Helper()
	need.CPUs(t, 2)
	cpus, err := CPUs()
	if err != nil {
		need.Missing(t, "affinity", err.Error())
	}
	return cpus[0]
}

func TestCPUsThatSlowEachOtherAreNotApart(t *testing.T) {
	cpu := oneOfTwoCPUs(t)
	// The floor was found in company and says nothing.
	probes := 0
	s := &stillness{floor: 2000, probe: func() (int64, error) {
		if probes++; probes <= 8 { // asked before the other CPU works
			return 1000, nil
		}
		return 1500, nil
	}}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := s.apart(ctx, cpu); !errors.Is(err, ErrDisturbed) {
		t.Errorf("got %v, want %v", err, ErrDisturbed)
	}
}

func TestWorkOnTheOtherCPUIsEndedWithTheQuestion(t *testing.T) {
	cpu := oneOfTwoCPUs(t)
	before := runtime.NumGoroutine()
	s := &stillness{floor: 1000, probe: costs(1000)}
	if err := s.apart(t.Context(), cpu); err != nil {
		t.Error(err)
	}
	// The goroutine has replied; it may not have ended yet.
	for end := time.Now().Add(10 * time.Second); runtime.NumGoroutine() > before; runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatalf("%d goroutines, %d before", runtime.NumGoroutine(), before)
		}
	}
	if err := s.apart(t.Context(), 1<<20); err == nil {
		t.Error("asked a CPU that does not exist")
	}
}
