package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// pluginPID returns the counting process, according to the instance's log.
func (in *instance) pluginPID() int {
	in.t.Helper()
	for line := range strings.Lines(in.talk.String()) {
		var said struct {
			Msg string `json:"msg"`
			PID int    `json:"pid"`
		}
		if json.Unmarshal([]byte(line), &said) == nil && said.Msg == "counting" {
			return said.PID
		}
	}
	in.t.Fatalf("no process is named in:\n%s", in.talk)
	return 0
}

// standStill stops the plugin by SIGSTOP, and waits until none of its threads runs.
func (in *instance) standStill(pid int) {
	in.t.Helper()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		in.t.Fatal(err)
	}
	runs := func(path string) bool {
		state, err := os.ReadFile(path)
		return err == nil && !strings.Contains(string(state), ") T ")
	}
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
		if err == nil && !slices.ContainsFunc(threads, runs) {
			return
		}
		if time.Now().After(deadline) {
			in.t.Fatal("the plugin did not stop")
		}
	}
}

// The plugin is stopped by SIGSTOP. The instance must still end, and take its program off the interface.
func TestRunStopsWithoutItsPlugin(t *testing.T) {
	in := newInstance(t, "")
	in.start()
	in.standStill(in.pluginPID())
	in.stop()
	if !strings.Contains(in.talk.String(), "plugin does not close, killed") {
		t.Errorf("the log does not say that the plugin was killed:\n%s", in.talk)
	}
	if in.attached() || exists(in.pins) {
		t.Errorf("attached %v, pins %v; want neither", in.attached(), exists(in.pins))
	}
}

// It must not leave a process behind.
func TestSecondSignalEndsRunAtOnce(t *testing.T) {
	in := newInstance(t, "")
	in.start()
	plugin := in.pluginPID()
	in.standStill(plugin)
	terminate := func() {
		t.Helper()
		if err := in.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
	}
	terminate()
	in.said(`"msg":"stopping"`)
	// A signal that comes sooner than sameRequest after the instance took the first is the same
	// request; on a machine under load the instance can take it late, so another one follows.
	for !strings.Contains(in.talk.String(), "second signal: ending at once") {
		terminate()
		time.Sleep(2 * sameRequest)
	}
	var code *exec.ExitError
	if err := in.cmd.Wait(); !errors.As(err, &code) || code.ExitCode() != exitFailed {
		t.Errorf("it ended with %v, want code %d:\n%s", err, exitFailed, in.talk)
	}
	in.cmd = nil
	if strings.Contains(in.talk.String(), "no health check") {
		t.Errorf("it waited for the plugin:\n%s", in.talk)
	}
	if err := syscall.Kill(plugin, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("the plugin is still there: %v", err)
	}
}

// timeout(1) sends each signal twice, to the process and to its group. Only a later signal is a second request.
func TestTwoSignalsAtOnceAreOneRequest(t *testing.T) {
	signals, over := make(chan os.Signal, 2), make(chan struct{})
	signals <- syscall.SIGTERM
	signals <- syscall.SIGTERM
	got := make(chan os.Signal, 1)
	go func() { got <- secondRequest(signals, over, time.Hour) }()
	for len(signals) > 0 {
		time.Sleep(time.Millisecond)
	}
	close(over)
	if s := <-got; s != nil {
		t.Errorf("the second of two signals of the same request returned %v, want nil", s)
	}
	signals <- syscall.SIGTERM
	signals <- syscall.SIGINT
	if s := secondRequest(signals, nil, -1); s == nil {
		t.Error("a later signal is no second request")
	}
}
