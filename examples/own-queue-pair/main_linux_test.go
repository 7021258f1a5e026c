package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine"
	"github.com/flowtally/flowtally/ibv/ibvtest"
	"github.com/flowtally/flowtally/internal/lab/soft"
	"github.com/flowtally/flowtally/shm"
)

var software soft.Libraries

// runMain makes the test's program the example.
const runMain = "OWN_QUEUE_PAIR_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(runMain) != "" {
		main()
		return
	}
	code := m.Run()
	if err := software.Close(); err != nil {
		panic(err)
	}
	os.Exit(code)
}

// instance runs an instance with reserved words and nothing else, and returns the path of its mirror.
func instance(t *testing.T, names ...string) (dataplane.Service, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "m.mirror")
	svc, err := engine.New(t.Context(), dataplane.Config{
		Instance: "own", Words: names, Mirror: dataplane.MirrorConfig{Path: path, Counters: 64, History: -1},
		Poll: dataplane.PollConfig{Period: time.Millisecond, IdlePeriod: time.Millisecond},
	}, engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := svc.Close(); err != nil {
			t.Error(err)
		}
	})
	return svc, path
}

// program starts the example as a process of its own.
func program(t *testing.T, env ibvtest.Env, args ...string) (cmd *exec.Cmd, stdin io.WriteCloser, out *bytes.Buffer) {
	t.Helper()
	libs := software.Get(t)
	cmd = exec.Command(os.Args[0], append(args, "-device", "swnic0", "-library", libs.Verbs, "-mlx5", libs.MLX5, "-efa", libs.EFA)...)
	env.Devices = []ibvtest.Device{{Name: "swnic0", Netdev: "lo"}}
	cmd.Env = append(append(os.Environ(), env.Environ()...), runMain+"=1")
	out = new(bytes.Buffer)
	cmd.Stdout, cmd.Stderr = out, out
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd, stdin, out
}

// until waits for a state.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within 30 s: %s", what)
		}
	}
}

func state(t *testing.T, svc dataplane.Service, name string) dataplane.WordsState {
	t.Helper()
	list, err := svc.ReservedWords(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range list {
		if w.Name == name {
			return w.State
		}
	}
	return ""
}

// A process with two queue pairs of its own counts both into the reserved words of one counter: by the device, and by
// the ring of its completion queue. The mirror, and a reader of the words, have the exact number.
func TestTwoQueuePairsOnOneReservedCounter(t *testing.T) {
	for _, tt := range []struct {
		how     string
		without []string
	}{{how: "comp_cntr"}, {how: "cq_ring", without: []string{"comp_cntr"}}} {
		t.Run(tt.how, func(t *testing.T) {
			svc, path := instance(t, "app")
			in, err := shm.OpenPath(path, shm.ReaderOptions{})
			if err != nil {
				t.Fatal(err)
			}
			defer in.Close()
			const count = 5000
			cmd, stdin, out := program(t, ibvtest.Env{Without: tt.without}, "-mirror", path, "-words", "app", "-count", fmt.Sprint(count), "-hold")
			c, err := in.Counter("app")
			if err != nil {
				t.Fatal(err)
			}
			until(t, "all completions in the mirror", func() bool {
				v, err := c.Load()
				return err == nil && v.Completions() >= 2*count
			})
			v, err := c.Load()
			if err != nil || v.Completions() != 2*count || v.Errors() != 0 {
				t.Errorf("the mirror shows %d completions and %d errors (%v), want %d", v.Completions(), v.Errors(), err, 2*count)
			}
			wantWords(t, path, 2*count)
			_ = stdin.Close()
			if err := cmd.Wait(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			want := fmt.Sprintf("counting by %s into app\n%d completions, 0 errors\n", tt.how, 2*count)
			if out.String() != want {
				t.Errorf("printed %q, want %q", out, want)
			}
			until(t, "the words are given back", func() bool { return state(t, svc, "app") == dataplane.WordsFree })
			if v, err := c.Load(); err != nil || v.Completions() != 2*count {
				t.Errorf("afterwards the mirror shows %d completions (%v)", v.Completions(), err)
			}
			t.Logf("%d completions of two queue pairs by %s: the mirror and the words have all of them", 2*count, tt.how)
		})
	}
}

// wantWords wants a total in the words themselves, with no poller in between.
func wantWords(t *testing.T, path string, want uint64) {
	t.Helper()
	r, err := shm.Open(path, shm.ReaderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	h, err := r.Lookup("app")
	if err != nil {
		t.Fatal(err)
	}
	d, err := r.Device(h)
	if err != nil {
		t.Fatal(err)
	}
	if comp, errs, err := d.Load(); err != nil || comp != want || errs != 0 {
		t.Errorf("the words have %d completions and %d errors (%v), want %d", comp, errs, err, want)
	}
}

// A program that is killed amid its operations leaves its words: they are readable, declared abandoned, and the next
// program gets others after the cool-down, where the total goes on.
func TestKilledProgramAbandonsItsWords(t *testing.T) {
	svc, path := instance(t, "app")
	in, err := shm.OpenPath(path, shm.ReaderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	c, err := in.Counter("app")
	if err != nil {
		t.Fatal(err)
	}
	completions := func() uint64 {
		v, err := c.Load()
		if err != nil {
			t.Fatal(err)
		}
		return v.Completions()
	}
	cmd, _, _ := program(t, ibvtest.Env{}, "-mirror", path, "-words", "app", "-count", "0")
	until(t, "completions", func() bool { return completions() > 1000 })
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	until(t, "the words are abandoned", func() bool { return state(t, svc, "app") == dataplane.WordsAbandoned })
	e := entry(t, path)
	if !strings.HasSuffix(e.Source, string(dataplane.ModeWordsAbandoned)) || !e.Stale {
		t.Errorf("the mirror shows source %q, stale %v", e.Source, e.Stale)
	}
	until(t, "the mirror has the last values of the words", func() bool { return completions() == wordsNow(t, path) })
	before := completions()
	const count = 500
	deadline := time.Now().Add(30 * time.Second)
	for { // in the cool-down the words are refused
		cmd, _, out := program(t, ibvtest.Env{}, "-mirror", path, "-words", "app", "-count", fmt.Sprint(count))
		err := cmd.Wait()
		if err == nil {
			break
		}
		if !strings.Contains(out.String(), "in use") || time.Now().After(deadline) {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	until(t, "the total of both programs", func() bool { return completions() >= before+2*count })
	if got := completions(); got != before+2*count {
		t.Errorf("%d completions, want %d and %d", got, before, 2*count)
	}
	if e := entry(t, path); e.Continuity.Discontinuities != 1 {
		t.Errorf("%d discontinuities, want 1", e.Continuity.Discontinuities)
	}
	t.Logf("killed after %d completions; %d with the next program", before, completions())
}

// entry returns the mirror's entry of the words.
func entry(t *testing.T, path string) shm.Entry {
	t.Helper()
	r, err := shm.Open(path, shm.ReaderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	all, err := r.Entries()
	if err != nil || len(all) != 1 {
		t.Fatalf("%d entries: %v", len(all), err)
	}
	return all[0]
}

// wordsNow returns the completions in the words themselves.
func wordsNow(t *testing.T, path string) uint64 {
	t.Helper()
	r, err := shm.Open(path, shm.ReaderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	d, err := r.Device(entry(t, path).Handle)
	if err != nil {
		t.Fatal(err)
	}
	comp, _, err := d.Load()
	if err != nil {
		t.Fatal(err)
	}
	return comp
}
