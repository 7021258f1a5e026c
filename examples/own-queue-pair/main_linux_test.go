package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/ibv/ibvtest"
	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/internal/lab/published"
	"github.com/flowtally/flowtally/shm/shmtest"
)

// A process with two queue pairs of its own counts both into the reserved words of one counter: by the device, and by
// the ring of its completion queue. The mirror, and a reader of the words, have the exact number.
func TestTwoQueuePairsOnOneReservedCounter(t *testing.T) {
	t.Run("comp_cntr", func(t *testing.T) { twoQueuePairs(t, softNIC(t, ibvtest.Env{}), "comp_cntr") })
	t.Run("cq_ring", func(t *testing.T) {
		twoQueuePairs(t, softNIC(t, ibvtest.Env{Without: []string{"comp_cntr"}}), "cq_ring")
	})
}

func twoQueuePairs(t *testing.T, n *nic, how string, args ...string) {
	svc, path := n.instance(t, "app")
	r := shmtest.MustOpen(t, path)
	const count = 5000
	p := n.example(t, path, "app", append(args, "-count", fmt.Sprint(count), "-hold")...)
	lab.Eventually(t, "all completions in the mirror", func() bool {
		p.running(t)
		return published.Completions(t, r, "app") >= 2*count
	})
	if got := published.Completions(t, r, "app"); got != 2*count {
		t.Errorf("the mirror shows %d completions, want %d", got, 2*count)
	}
	if comp, errs := loadWords(t, r, "app"); comp != 2*count || errs != 0 {
		t.Errorf("the words have %d completions and %d errors, want %d", comp, errs, 2*count)
	}
	if n.loaded != nil {
		n.loaded(t, p.pid)
	}
	_ = p.stdin.Close()
	if err := p.wait(); err != nil {
		t.Fatalf("%v\n%s", err, p.out)
	}
	want := fmt.Sprintf("counting by %s into app\n%d completions, 0 errors\n", how, 2*count)
	if p.out.String() != want {
		t.Errorf("printed %q, want %q", p.out, want)
	}
	lab.Eventually(t, "the words are given back", func() bool { return published.Words(t, svc, "app") == dataplane.WordsFree })
	if got := published.Completions(t, r, "app"); got != 2*count {
		t.Errorf("afterwards the mirror shows %d completions", got)
	}
	t.Logf("%d completions of two queue pairs by %s: the mirror and the words have all of them", 2*count, how)
}

// A program that is killed amid its operations leaves its words: they are readable, declared abandoned, and the next
// program gets others after the cool-down, where the total goes on.
func TestKilledProgramAbandonsItsWords(t *testing.T) { killedProgram(t, softNIC(t, ibvtest.Env{})) }

func killedProgram(t *testing.T, n *nic, args ...string) {
	killed(t, n, func(path string, count int) *process {
		return n.example(t, path, "app", append(args, "-count", fmt.Sprint(count))...)
	})
}

// killed kills a program that start has started. Each of its two queue pairs has count operations; 0: without end.
func killed(t *testing.T, n *nic, start func(path string, count int) *process) {
	svc, path := n.instance(t, "app")
	r := shmtest.MustOpen(t, path)
	p := start(path, 0)
	lab.Eventually(t, "completions", func() bool {
		p.running(t)
		return published.Completions(t, r, "app") > 1000
	})
	if err := p.kill(); err != nil {
		t.Fatal(err)
	}
	_ = p.wait()
	lab.Eventually(t, "the words are abandoned", func() bool { return published.Words(t, svc, "app") == dataplane.WordsAbandoned })
	if e := entry(t, r, "app"); !strings.HasSuffix(e.Source, string(dataplane.ModeWordsAbandoned)) || !e.Stale {
		t.Errorf("the mirror shows source %q, stale %v", e.Source, e.Stale)
	}
	lab.Eventually(t, "the mirror has the last values of the words", func() bool {
		comp, _ := loadWords(t, r, "app")
		return published.Completions(t, r, "app") == comp
	})
	before := published.Completions(t, r, "app")
	const count = 500
	deadline := time.Now().Add(30 * time.Second)
	for { // in the cool-down the words are refused
		p := start(path, count)
		err := p.wait()
		if err == nil {
			break
		}
		if !strings.Contains(p.out.String(), "cool down") || time.Now().After(deadline) {
			t.Fatalf("%v\n%s", err, p.out)
		}
	}
	lab.Eventually(t, "the total of both programs", func() bool { return published.Completions(t, r, "app") >= before+2*count })
	if got := published.Completions(t, r, "app"); got != before+2*count {
		t.Errorf("%d completions, want %d and %d", got, before, 2*count)
	}
	if e := entry(t, r, "app"); e.Continuity.Discontinuities != 1 {
		t.Errorf("%d discontinuities, want 1", e.Continuity.Discontinuities)
	}
	t.Logf("killed after %d completions; %d with the next program", before, published.Completions(t, r, "app"))
}
