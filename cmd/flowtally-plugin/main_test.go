package main

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/internal/lab/soft"
	"github.com/flowtally/flowtally/internal/plugintest"
	"github.com/flowtally/flowtally/plugin"
	"github.com/flowtally/flowtally/shm"
)

// The test binary is the plugin when a host starts it: main runs then.
const roleEnv = "FLOWTALLY_TEST_ROLE"

func TestMain(m *testing.M) {
	if os.Getenv(roleEnv) == "plugin" {
		main()
		return
	}
	uverbs.Preload()
	_ = lab.Isolate(lab.ForTests) // without the privilege the tests run where they are
	code := m.Run()
	uverbs.Close()
	software.Close()
	os.Exit(code)
}

// uverbs is below the host's RDMA libraries, in this process and in its plugins.
var uverbs soft.Kernel

// software has the shim in front of the host's libraries, for what no kernel can cause.
var software soft.Libraries

var instances atomic.Int64

// launch starts the real engine, with its sim backend, in a process of its own.
func launch(t *testing.T, flows ...flow.Flow) *plugin.Client {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	name := fmt.Sprintf("t%d-%d", os.Getpid(), instances.Add(1))
	c, err := plugin.Launch(t.Context(), plugin.Options{
		Path: self, Env: []string{roleEnv + "=plugin"},
		Logger: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})),
		Config: dataplane.Config{
			Instance: name, Backend: "sim", Flows: flows,
			Mirror: dataplane.MirrorConfig{Path: filepath.Join(t.TempDir(), name+".mirror")},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func TestEngineInItsProcessConforms(t *testing.T) {
	plugintest.Conformance(t, func() dataplane.Service { return launch(t) })
}

// A reader of the mirror sees the totals continue after a kill -9 of the plugin, under the same handles, both for a
// configured flow and for one added at run time.
func TestTotalsGoOnOverKills(t *testing.T) {
	c := launch(t, flow.Flow{Name: "configured"})
	if _, err := c.AddFlows(t.Context(), flow.Flow{Name: "added"}); err != nil {
		t.Fatal(err)
	}
	info, err := c.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r, err := shm.OpenReader(info.Mirror)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	names := []string{"configured", "added"}
	last := map[string]uint64{}
	check := func(when string) (all bool) {
		t.Helper()
		all = true
		for _, name := range names {
			h, err := r.Lookup(name)
			if err != nil {
				t.Fatalf("%s: looking up %s: %v", when, name, err)
			}
			counter, err := r.Counter(h)
			if err != nil {
				t.Fatalf("%s: %v", when, err)
			}
			v, err := counter.Load()
			if err != nil {
				t.Fatalf("%s: reading %s: %v", when, name, err)
			}
			if v.Packets < last[name] {
				t.Fatalf("%s: %s fell from %d to %d", when, name, last[name], v.Packets)
			}
			all = all && v.Packets > last[name]
			last[name] = max(last[name], v.Packets)
		}
		return all
	}
	grows := func(when string) {
		t.Helper()
		for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
			if check(when) {
				return
			}
		}
		t.Fatalf("%s: the totals stand still: %v", when, last)
	}
	grows("at first")
	for i := range 3 {
		info, err := c.Info(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := syscall.Kill(info.PID, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		for end := time.Now().Add(20 * time.Second); c.Restarts() == i; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("the plugin does not come back")
			}
			check("while the plugin is down")
		}
		grows(fmt.Sprintf("after kill %d", i+1))
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	check("after the end")
}

func TestPluginStartedByHandNamesTheRightCommand(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) (stdout, stderr string, code int) {
		var out, errs bytes.Buffer
		cmd := exec.Command(self, args...)
		cmd.Env = append(os.Environ(), roleEnv+"=plugin")
		cmd.Stdout, cmd.Stderr = &out, &errs
		_ = cmd.Run()
		return out.String(), errs.String(), cmd.ProcessState.ExitCode()
	}
	if out, errs, code := run(); code != 1 || out != "" || !strings.Contains(errs, "This binary is a plugin") || !strings.Contains(errs, "flowtally run") {
		t.Errorf("by hand: %d, %q, %q", code, out, errs)
	}
	if out, _, code := run("--version"); code != 0 || !strings.HasPrefix(out, "flowtally-plugin ") || !strings.Contains(out, "plugin protocol 1\n") {
		t.Errorf("--version: %d, %q", code, out)
	}
}
