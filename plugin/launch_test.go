package plugin_test

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/plugintest"
	"github.com/flowtally/flowtally/plugin"
)

func TestProcessConforms(t *testing.T) {
	plugintest.Conformance(t, func() dataplane.Service { return launch(t, options(t, "fake")) })
}

func TestProcessQueuePairsConform(t *testing.T) {
	plugintest.QueuePairConformance(t, "rxe0", 0, func(pairs []dataplane.QueuePair) dataplane.Service {
		o := options(t, "fake")
		o.Config.QueuePairs = pairs
		return launch(t, o)
	})
}

// A plugin can fail to start in many ways. Each error must have the right sentinel and help the user.
func TestEachFailedLaunchNamesItsCause(t *testing.T) {
	for _, test := range []struct {
		role string
		is   error
		says []string
	}{
		{"version-2", plugin.ErrIncompatible, []string{"speaks protocol version 2", "this program speaks 1", "the plugin is newer", "upgrade"}},
		{"wrong-cookie", plugin.ErrStart, []string{"exit status 1", "This binary is a plugin", "flowtally run"}},
		{"silent", plugin.ErrStart, []string{"no handshake in time"}},
		{"exit-3", plugin.ErrStart, []string{"exit status 3", "the moon is in the wrong phase"}},
		{"babbles", plugin.ErrStart, []string{"hello, I am no plugin"}},
		{"net-rpc", plugin.ErrStart, []string{"netrpc"}},
		{"orphans", plugin.ErrStart, []string{"exit status 4"}},
		{"refuses", dataplane.ErrInUse, []string{"mirror /dev/shm/x"}},
		{"panics", plugin.ErrStart, []string{"exit status 2", "no luck today"}},
		{"dawdles", plugin.ErrStart, []string{"no reply in time"}},
	} {
		t.Run(test.role, func(t *testing.T) {
			t.Parallel()
			opts := options(t, test.role)
			opts.Logger = nil
			opts.StartTimeout = time.Minute // for hangs: all of them start at once
			switch test.role {
			case "silent":
				opts.StartTimeout = 2 * time.Second
			case "dawdles":
				opts.ConfigureTimeout = 2 * time.Second
			}
			c, err := plugin.Launch(t.Context(), opts)
			if err == nil {
				c.Close()
				t.Fatal("launched")
			}
			if !errors.Is(err, test.is) {
				t.Errorf("error does not satisfy %q: %v", test.is, err)
			}
			for _, s := range test.says {
				if !strings.Contains(err.Error(), s) {
					t.Errorf("error does not say %q: %v", s, err)
				}
			}
			if test.is != dataplane.ErrInUse && !strings.Contains(err.Error(), opts.Path) {
				t.Errorf("error does not name the plugin: %v", err)
			}
		})
	}
}

// A hostile plugin could name the address of another service in its handshake, to make a privileged host connect there.
func TestHostDialsOnlyItsPluginsSocket(t *testing.T) {
	port, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer port.Close()
	socket, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	var calls atomic.Int32
	for _, l := range []net.Listener{port, socket} {
		go func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				calls.Add(1)
				conn.Close()
			}
		}()
	}
	for address, says := range map[string]string{
		"tcp " + port.Addr().String(): "only a unix socket in", "unix " + socket.Addr().String(): "only a unix socket in",
		"link " + socket.Addr().String(): "links are not followed", "unix @abstract": "only a unix socket in",
	} {
		opts := options(t, "misleads")
		opts.Env = append(opts.Env, addressEnv+"="+address)
		if _, err := plugin.Launch(t.Context(), opts); !errors.Is(err, plugin.ErrStart) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q", address, err, says)
		}
	}
	if n := calls.Load(); n != 0 {
		t.Errorf("the host has called %d times", n)
	}
}

func TestLaunchEndsSoonAfterItsContext(t *testing.T) {
	for _, role := range []string{"silent", "dawdles"} {
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		opts := options(t, role)
		opts.StartTimeout, opts.ConfigureTimeout = 2*time.Minute, 2*time.Minute
		start := time.Now()
		if _, err := plugin.Launch(ctx, opts); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", role, err)
		}
		if took := time.Since(start); took > time.Minute {
			t.Errorf("%s: giving up took %v", role, took)
		}
	}
}

func TestLaunchFailsOnAnInvalidFlow(t *testing.T) {
	opts := options(t, "fake")
	opts.Config.Flows = []flow.Flow{{Name: "ok"}, {Name: "not ok"}}
	if _, err := plugin.Launch(t.Context(), opts); !errors.Is(err, dataplane.ErrInvalid) || !strings.Contains(err.Error(), "not ok") {
		t.Errorf("error is %v", err)
	}
}

func TestFindNamesWhyABinaryCannotBeUsed(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "plugin")
	if err := os.WriteFile(file, []byte("#!/bin/sh\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir)
	for _, test := range []struct {
		name, path, says string
		is               error
	}{
		{"absent", filepath.Join(dir, "absent"), "absent", fs.ErrNotExist},
		{"not executable", file, "chmod 0755", nil},
		{"directory", dir, "not a regular file", nil},
		{"nowhere", "", "install it there, or name its path", fs.ErrNotExist},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := plugin.Launch(t.Context(), plugin.Options{Path: test.path})
			if err == nil || !strings.Contains(err.Error(), test.says) || test.is != nil && !errors.Is(err, test.is) {
				t.Errorf("error is %v", err)
			}
		})
	}
}

// syncBuffer is a buffer for a logger in one goroutine and a test in another.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// go-plugin panics on a log line whose "@message" is not a string, unless its own logger is off.
func TestHostileLogDoesNotPanicTheHost(t *testing.T) {
	var log, raw syncBuffer // raw is written by goroutines of the client and read here
	opts := options(t, "hostile-log")
	opts.Logger = slog.New(slog.NewJSONHandler(&log, nil))
	opts.Stderr = &raw
	c := launch(t, opts)
	defer func() {
		if t.Failed() {
			t.Logf("%.3000s", log.String())
		}
	}()
	if _, err := c.AddFlows(t.Context(), flow.Flow{Name: "a"}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "both records around the garbage", func() bool {
		s := log.String()
		return strings.Contains(s, `"msg":"before the garbage","n":1`) && strings.Contains(s, `"msg":"behind the garbage","object":{"a":1}`)
	})
	eventually(t, "the garbage as it was written", func() bool { return strings.Contains(raw.String(), "\x00\xff\xfe") })
	if s := log.String(); !strings.Contains(s, `"msg":"42"`) {
		t.Errorf("the number as a message is not in the log")
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

// The plugin knows the level of the host, so that it does not format messages nobody wants.
func TestPluginLogsAtTheLevelOfItsHost(t *testing.T) {
	var log syncBuffer
	opts := options(t, "fake")
	opts.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelInfo}))
	var raw syncBuffer
	opts.Stderr = &raw
	launch(t, opts).Close()
	if s := log.String(); !strings.Contains(s, "fake instance started") || !strings.Contains(s, "instance=default") {
		t.Errorf("log is %q", s)
	}
	opts.Logger, raw = nil, syncBuffer{}
	launch(t, opts).Close()
	if s := raw.String(); s != "" {
		t.Errorf("a plugin whose log nobody reads wrote %q", s)
	}
}

// 65,536 flows, the capacity of the tables, must fit into one message in either direction.
func TestAsManyFlowsAsTheTablesHoldCrossInOneMessage(t *testing.T) {
	const n = 65536
	opts := options(t, "fake")
	for i := range n {
		opts.Config.Flows = append(opts.Config.Flows, flow.Flow{
			Name: "configured/" + strings.Repeat("x", 40) + strconv.Itoa(i),
			Match: flow.Match{
				IPv4: &flow.IPv4{Dst: flow.Addr4{Addr: [4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}, Mask: [4]byte{255, 255, 255, 255}}},
				TCP:  &flow.TCP{Ports: flow.Ports{Dst: flow.Port{Value: 443, Mask: 0xffff}}},
			},
			Labels: map[string]string{"service": "some-name-of-a-service", "zone": "eu-central-1a"},
		})
	}
	start := time.Now()
	c := launch(t, opts)
	launched := time.Since(start)
	start = time.Now()
	placed, err := c.Placements(t.Context())
	if err != nil || len(placed) != n {
		t.Fatalf("%d placements, %v", len(placed), err)
	}
	t.Logf("launch with %d flows %v, placements %v", n, launched, time.Since(start))
}
