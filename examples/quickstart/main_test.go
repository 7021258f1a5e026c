//go:build linux

package main

import (
	"context"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine"
	"github.com/flowtally/flowtally/plugin"
)

// The test binary is also the program, and its plugin under the plugin's name.
const programEnv = "FLOWTALLY_TEST_PROGRAM"

func TestMain(m *testing.M) {
	switch {
	case filepath.Base(os.Args[0]) == plugin.BinaryName:
		os.Exit(plugin.Serve(plugin.ServeOptions{Factory: func(ctx context.Context, cfg dataplane.Config, l *slog.Logger) (dataplane.Service, error) {
			e, err := engine.New(ctx, cfg, engine.Options{Logger: l})
			if err != nil {
				return nil, err
			}
			return e, nil
		}}))
	case os.Getenv(programEnv) != "":
		main()
		return
	}
	os.Exit(m.Run())
}

func TestQuickstartPrintsItsCount(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.Symlink(self, filepath.Join(dir, plugin.BinaryName)); err != nil {
		t.Fatal(err)
	}
	// Without privilege the writer needs a tmpfs directory of its own: /dev/shm/flowtally may be another user's.
	runtime, err := os.MkdirTemp("/dev/shm", "quickstart-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(runtime) })
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), programEnv+"=1", "PATH="+dir, "XDG_RUNTIME_DIR="+runtime)
	cmd.Stderr = t.Output()
	out, err := cmd.Output()
	if err != nil || !regexp.MustCompile(`^web: [1-9][0-9]{3,} packets\n$`).Match(out) {
		t.Errorf("it printed %q, %v; want at least 1000 packets", out, err)
	}
}

// A program that cannot count says why and what to do, and nothing of its goroutines.
func TestQuickstartSaysWhatFailed(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), programEnv+"=1", "PATH="+t.TempDir()) // without a plugin
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), plugin.BinaryName) || strings.Contains(string(out), "goroutine") {
		t.Errorf("%v: %s", err, out)
	}
}

// The README shows this program, whole.
func TestTheREADMEHasTheQuickstart(t *testing.T) {
	program, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(program), "\n"); n > 25 {
		t.Errorf("the program has %d lines, more than 25", n)
	}
	if !strings.Contains(string(readme), "```go\n"+string(program)+"```\n") {
		t.Error("the README shows another program than examples/quickstart/main.go")
	}
}
