package plugin_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/plugin"
)

// TestPulseGivesUpOnSilenceAndNeverOnSlowReplies has the other side: a slow plugin survives.
func TestWatchdogReplacesAStoppedPlugin(t *testing.T) {
	opts := options(t, "fake")
	opts.Watchdog = 2 * time.Second
	opts.Config.Flows = []flow.Flow{{Name: "a"}}
	c := launch(t, opts)
	exited, n := c.ChildExited(), c.Restarts()
	if err := syscall.Kill(pid(t, c), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	<-exited // SIGKILL alone ends a process that is stopped
	restarted(t, c, n+1)
	eventually(t, "the flows to be there again", func() bool {
		placed, err := c.Placements(t.Context())
		return err == nil && len(placed) == 1 && placed[0].Flow.Name == "a"
	})
}

// To remove the programs of a dead plugin, Close starts one more plugin.
func TestCloseWhileDownRemovesProgramsUnlessPinsAreKept(t *testing.T) {
	for _, keep := range []bool{false, true} {
		t.Run(fmt.Sprintf("keep pins %v", keep), func(t *testing.T) {
			opts, marker := marked(t, "fake")
			opts.RestartMin, opts.RestartMax = time.Hour, time.Hour
			opts.Config.XDP.KeepPins = keep
			c := launch(t, opts)
			if _, err := c.AddFlows(t.Context(), flow.Flow{Name: "a"}); err != nil {
				t.Fatal(err)
			}
			kill(t, c, syscall.SIGKILL)
			if err := c.Close(); err != nil {
				t.Fatal(err)
			}
			want := []string{"start_0", "start_1", "close"}
			if keep {
				want = want[:1]
			}
			got := lines(t, marker)
			if len(got) > len(want) { // Serve closes once more on its way out
				got = got[:len(want)]
			}
			if !slices.Equal(got, want) {
				t.Errorf("what happened is %q, want %q", got, want)
			}
		})
	}
}

// standStill stops a process by SIGSTOP and waits until all its threads have stopped.
func standStill(t *testing.T, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	eventually(t, "all threads to stop", func() bool {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
		return err == nil && !slices.ContainsFunc(threads, func(path string) bool {
			state, err := os.ReadFile(path)
			return err == nil && !strings.Contains(string(state), ") T ")
		})
	})
}

// Close must not wait the whole CloseTimeout for a plugin stopped by a signal. It kills the plugin and starts another one
// to remove the programs.
func TestCloseKillsAStoppedPluginEarly(t *testing.T) {
	opts, marker := marked(t, "fake")
	opts.CloseTimeout = 40 * time.Second
	opts.Watchdog = -1
	var log syncBuffer
	opts.Logger = slog.New(slog.NewTextHandler(&log, nil))
	c := launch(t, opts)
	standStill(t, pid(t, c))
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if s := log.String(); !strings.Contains(s, "plugin does not close, killed") || !strings.Contains(s, "fails health checks") {
		t.Errorf("the log says %q", s)
	}
	if got := lines(t, marker); len(got) < 3 || !slices.Equal(got[:3], []string{"start_0", "start_0", "close"}) {
		t.Errorf("what happened is %q", got)
	}
}

// A restart subscribes to the events of the new plugin. If the plugin is stopped just then, Close, Kill and the watchdog must
// still be able to end it.
func TestPluginStoppedDuringItsRestartIsKilled(t *testing.T) {
	for name, end := range map[string]func(*plugin.Client) error{
		"Close":    (*plugin.Client).Close,
		"Kill":     (*plugin.Client).Kill,
		"watchdog": nil,
	} {
		t.Run(name, func(t *testing.T) {
			before := runtime.NumGoroutine()
			opts, marker := marked(t, "freezes")
			opts.CloseTimeout, opts.Watchdog = 20*time.Second, -1
			if end == nil {
				opts.Watchdog = 2 * time.Second
			}
			opts.Logger = nil
			c := launch(t, opts)
			if _, err := c.Events(context.Background()); err != nil {
				t.Fatal(err)
			}
			kill(t, c, syscall.SIGKILL)
			frozen := 0
			eventually(t, "the second process to subscribe", func() bool {
				got := lines(t, marker)
				i := slices.Index(got, "freezing")
				if i >= 0 && i+1 < len(got) {
					frozen, _ = strconv.Atoi(got[i+1])
				}
				return frozen != 0
			})
			t.Cleanup(func() { _ = syscall.Kill(frozen, syscall.SIGKILL) })
			if end == nil {
				restarted(t, c, 2)
				eventually(t, "the third process to be there", func() bool { _, err := c.Placements(t.Context()); return err == nil })
				end = (*plugin.Client).Close
			} else {
				standStill(t, frozen)
			}
			ended := make(chan error, 1)
			go func() { ended <- end(c) }()
			select {
			case err := <-ended:
				if (err != nil) != (name == "Kill") {
					t.Errorf("error is %v", err)
				}
			case <-time.After(2 * opts.CloseTimeout):
				t.Fatal("it hangs")
			}
			if alive(frozen) {
				t.Error("the process is still there")
			}
			eventually(t, "goroutines to end", func() bool { return runtime.NumGoroutine() <= before+2 })
		})
	}
}

func TestKillEndsACloseThatWaits(t *testing.T) {
	opts := options(t, "never-closes")
	opts.CloseTimeout = time.Hour
	c := launch(t, opts)
	exited := c.ChildExited()
	closed := make(chan error, 1)
	go func() { closed <- c.Close() }()
	eventually(t, "the closing to begin", func() bool { return errors.Is(c.RemoveFlows(t.Context(), "x"), dataplane.ErrClosed) })
	for range 2 {
		if err := c.Kill(); err == nil || !strings.Contains(err.Error(), "was killed before it had closed") {
			t.Errorf("killing: %v", err)
		}
	}
	if err := <-closed; err == nil {
		t.Error("closing says nothing of it")
	}
	select {
	case <-exited:
	default:
		t.Error("the process is still there")
	}
}

// The plugin ends without closing its instance, so its programs stay attached. Close removes them unless pins are kept.
func TestCloseDetachesProgramsOfAPluginThatFailsToClose(t *testing.T) {
	for _, keep := range []bool{false, true} {
		t.Run(fmt.Sprintf("keep pins %v", keep), func(t *testing.T) {
			opts := options(t, "fails-to-close")
			opts.Config.XDP.PinDir = filepath.Join(t.TempDir(), "pins")
			opts.Config.XDP.KeepPins = keep
			c := launch(t, opts)
			if err := os.Mkdir(opts.Config.XDP.PinDir, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := c.Close(); err == nil || !strings.Contains(err.Error(), "a call does not return") || errors.Is(err, plugin.ErrLeft) {
				t.Errorf("closing: %v", err)
			}
			if _, err := os.Stat(opts.Config.XDP.PinDir); keep != (err == nil) {
				t.Errorf("the pins: %v", err)
			}
		})
	}
}

func TestCloseKillsAPluginThatNeverCloses(t *testing.T) {
	opts := options(t, "never-closes")
	opts.CloseTimeout = 500 * time.Millisecond
	c := launch(t, opts)
	exited := c.ChildExited()
	start := time.Now()
	if err := c.Close(); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "did not close within") {
		t.Errorf("error is %v", err)
	}
	if took := time.Since(start); took > 30*time.Second {
		t.Errorf("closing took %v", took)
	}
	select {
	case <-exited:
	default:
		t.Error("the process is still there")
	}
	if err := c.RemoveFlows(t.Context(), "x"); !errors.Is(err, dataplane.ErrClosed) {
		t.Errorf("a call after Close: %v", err)
	}
}

// An upgrade may replace the binary by a broken one. The condition must report the failed attempts, until somebody repairs
// the binary.
func TestSupervisorTriesUntilTheBinaryWorksAgain(t *testing.T) {
	opts := options(t, "fake")
	come := away(t, &opts)
	c := launch(t, opts)
	come(false)
	kill(t, c, syscall.SIGKILL)
	eventually(t, "the condition to tell of failed attempts", func() bool {
		down, err := c.Conditions(t.Context())
		return err == nil && len(down) == 1 && strings.Contains(down[0].Text, "does not start: attempt 3") && strings.Contains(down[0].Text, opts.Path)
	})
	come(true)
	restarted(t, c, 1)
	wantOrder(t, c)
}

// Close at random moments of a restart must not leave a process, a file or a goroutine behind.
func TestCloseInRestartLeavesNothing(t *testing.T) {
	before := runtime.NumGoroutine()
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	for i := range 8 {
		opts := options(t, "fake")
		opts.RestartMin, opts.RestartMax = time.Millisecond, time.Millisecond
		opts.Logger = nil
		c := launch(t, opts)
		kill(t, c, syscall.SIGKILL)
		time.Sleep(time.Duration(i) * 7 * time.Millisecond)
		var closers sync.WaitGroup
		for range 3 {
			closers.Go(func() {
				if err := c.Close(); err != nil {
					t.Errorf("closing after %d ms: %v", i*7, err)
				}
			})
		}
		closers.Wait()
		if _, err := c.Placements(t.Context()); !errors.Is(err, dataplane.ErrClosed) {
			t.Errorf("a call after Close: %v", err)
		}
		if _, err := c.Events(t.Context()); !errors.Is(err, dataplane.ErrClosed) {
			t.Errorf("events after Close: %v", err)
		}
	}
	eventually(t, "goroutines to end", func() bool { return runtime.NumGoroutine() <= before+2 })
	if left, err := os.ReadDir(tmp); err != nil || len(left) != 0 {
		t.Errorf("left in the temporary directory: %v, %v", left, err)
	}
}

// Many goroutines change flows while the test kills the plugin again and again. In the end the flows of successful calls
// exist, and those of failed calls do not.
func TestEachChangeUnderKillsHappensWhollyOrNotAtAll(t *testing.T) {
	opts := options(t, "fake")
	opts.RestartMin, opts.RestartMax = time.Millisecond, 5*time.Millisecond
	opts.Logger = nil
	c := launch(t, opts)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	var mu sync.Mutex
	want := map[string]bool{}
	var failed int
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				name := fmt.Sprintf("g%d-%d", g, i)
				_, err := c.AddFlows(context.Background(), flow.Flow{Name: name})
				if err == nil && i%3 == 0 {
					if rerr := c.RemoveFlows(context.Background(), name); rerr == nil {
						continue
					} else if !errors.Is(rerr, dataplane.ErrUnavailable) {
						t.Errorf("removing: %v", rerr)
					}
				}
				mu.Lock()
				if err == nil {
					want[name] = true
				} else {
					failed++
				}
				mu.Unlock()
				if err != nil && !errors.Is(err, dataplane.ErrUnavailable) {
					t.Errorf("adding: %v", err)
				}
				time.Sleep(time.Millisecond)
			}
		})
	}
	kills := 0
	enough := func() bool {
		mu.Lock()
		defer mu.Unlock()
		return kills >= 8 && len(want) >= 20 && failed > 0
	}
	for ctx.Err() == nil && !enough() {
		time.Sleep(50 * time.Millisecond)
		n := c.Restarts()
		if p := pid(t, c); p != 0 && syscall.Kill(p, syscall.SIGKILL) == nil {
			kills++
			restarted(t, c, n+1)
		}
	}
	if ctx.Err() != nil {
		t.Error("that was too little to tell")
	}
	cancel()
	wg.Wait()
	eventually(t, "the plugin to be there", func() bool { _, err := c.Placements(context.Background()); return err == nil })
	got := inOrder(t, c)
	for _, name := range got {
		if !want[name] {
			t.Errorf("%s is there although adding it failed", name)
		}
		delete(want, name)
	}
	for name := range want {
		t.Errorf("%s is gone although adding it succeeded", name)
	}
	t.Logf("%d kills, %d flows, %d changes refused meanwhile", kills, len(got), failed)
}
