package cli

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/internal/plugintest"
)

// newRunning returns an instance in memory, with a mirror that has values.
func newRunning(t *testing.T, strict bool) (r *running, fake *plugintest.Fake, talk *lockedBuffer) {
	t.Helper()
	path, _ := webMirror(t)
	svc, err := plugintest.NewFake(t.Context(), dataplane.Config{
		Mirror: dataplane.MirrorConfig{Path: path}, Flows: []flow.Flow{{Name: "web"}},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	talk = &lockedBuffer{}
	env := &Env{Context: t.Context(), Stdout: &bytes.Buffer{}, Stderr: talk, Logger: slog.New(slog.NewTextHandler(talk, nil))}
	return &running{env: env, svc: svc, instance: "default", strict: strict}, svc.(*plugintest.Fake), talk
}

var grave = dataplane.Condition{
	Code: "interface-missing", Severity: dataplane.High, Object: "eth9", Text: "eth9 is gone", Fix: "plug it in",
}

// A milder condition changes nothing, and without --strict neither does a grave one.
func TestStrictRunFailsOnAGraveCondition(t *testing.T) {
	r, fake, talk := newRunning(t, true)
	mild := grave
	mild.Severity = dataplane.Medium
	fake.SetConditions(mild)
	if err := r.announce(); err != nil {
		t.Errorf("a mild condition: %v", err)
	}
	fake.SetConditions(grave)
	if err := r.serve(nil); !errors.Is(err, exitError(exitDegraded)) {
		t.Errorf("a grave condition: %v, want exit code 3", err)
	}
	if want := "flowtally: eth9: eth9 is gone (interface-missing)\n  try: plug it in\n"; !strings.Contains(talk.String(), want) {
		t.Errorf("said %q, want %q in it", talk, want)
	}
	r.strict = false
	if err := r.announce(); err != nil {
		t.Errorf("not strict: %v", err)
	}
}

// A command in a fix must use the same socket as the command that printed it.
func TestListedFixesKeepTheSelection(t *testing.T) {
	_, fake, _ := newRunning(t, false)
	stale := grave
	stale.Code, stale.Fix = dataplane.CodeWordsAbandoned, "start the program again, or: flowtally queue-pairs release app"
	fake.SetConditions(stale)
	socket := filepath.Join(t.TempDir(), "run", "own.sock")
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- serveControl(ctx, socket, fake) }()
	defer func() { stop(); <-served }()

	for _, command := range []string{"flows list", "flows list -o json", "queue-pairs list"} {
		want := "flowtally queue-pairs release app --socket " + socket
		lab.Eventually(t, command+" prints "+want, func() bool {
			code, out, _ := run(t, append(strings.Fields(command), "--socket", socket)...)
			return code == exitOK && strings.Contains(out, want)
		})
	}
}

func TestServeSucceedsAtASignalAndFailsIfTheInstanceEnds(t *testing.T) {
	r, fake, talk := newRunning(t, false)
	served := make(chan error, 1)
	go func() { served <- r.serve(nil) }()
	said := func(want string) {
		t.Helper()
		for deadline := time.Now().Add(20 * time.Second); !strings.Contains(talk.String(), want); time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%q was not said in %q", want, talk)
			}
		}
	}
	said("msg=counting")
	fake.Emit(dataplane.Event{Kind: dataplane.PluginRestarted, Object: "plugin", Text: "restarted it", Lost: 3})
	said(`level=WARN msg="plugin restarted" object=plugin what="restarted it" events_lost=3`)
	fake.Emit(dataplane.Event{Kind: dataplane.SourceChanged, Object: "web", Text: "xdp", Uncounted: dataplane.Uncounted{Packets: 7, Bytes: 420}})
	said(`level=WARN msg="source changed" object=web what=xdp uncounted_packets=7 uncounted_bytes=420`)
	fake.Emit(dataplane.Event{Kind: dataplane.SourceChanged, Object: "dns", Text: "xdp", Uncounted: dataplane.Uncounted{Unknown: true}})
	said(`object=dns what=xdp uncounted=unknown`)
	if err := fake.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-served; !errors.Is(err, dataplane.ErrClosed) || !strings.Contains(err.Error(), "ended by itself") {
		t.Errorf("the instance ended: %v", err)
	}

	r, _, talk = newRunning(t, false)
	ctx, cancel := context.WithCancel(t.Context())
	r.env.Context = ctx
	go func() { served <- r.serve(nil) }()
	said("msg=counting")
	cancel()
	if err := <-served; err != nil {
		t.Errorf("the context ended: %v", err)
	}
}

// A large set of flows would otherwise be in memory twice.
func TestStartedInstanceLeavesNoFlowInTheConfiguration(t *testing.T) {
	c := runCmd{Embedded: true}
	cfg := dataplane.Config{
		Backend: "sim", Flows: []flow.Flow{{Name: "web"}},
		Mirror: dataplane.MirrorConfig{Path: filepath.Join(t.TempDir(), "t.mirror"), Counters: 64},
	}
	svc, err := c.start(&Env{Context: t.Context()}, &cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer svc.Close()
	placed, err := svc.Placements(t.Context())
	if err != nil || len(placed) != 1 || len(cfg.Flows) != 0 {
		t.Errorf("the instance has %d flows, the configuration %d, want 1 and 0: %v", len(placed), len(cfg.Flows), err)
	}
}
