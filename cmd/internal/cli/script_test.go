package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/internal/plugintest"
	"github.com/flowtally/flowtally/plugin"
)

// TestMain lets this test binary be the programs in the scripts. They run in namespaces of their own if the privileges
// allow it.
func TestMain(m *testing.M) {
	if code, is := engine.TrialMain(); is { // of a test that calls Main with run --embedded
		os.Exit(code)
	}
	if strings.HasSuffix(os.Args[0], ".test") {
		_ = lab.Isolate(lab.ForTests)
	}
	testscript.Main(m, map[string]func(){
		"flowtally": func() {
			ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
			code := checkedMain(ctx)
			stop()
			os.Exit(code)
		},
		"flowtally-plugin": func() {
			os.Exit(plugin.Serve(plugin.ServeOptions{
				Factory: func(ctx context.Context, cfg dataplane.Config, log *slog.Logger) (dataplane.Service, error) {
					return engine.New(ctx, cfg, engine.Options{Logger: log})
				},
			}))
		},
		"fakeinstance": fakeInstance,
		"mkmirror":     mkmirror,
		"mkpcap":       mkpcap,
		"sendframes":   sendFrames,
		"httpget":      httpget,
	})
}

// fakeInstance implements "fakeinstance SOCKET": an instance in memory with a real control socket, until SIGINT. Its
// mirror is SOCKET.counters.mirror, which the script may write by mkmirror. The queue pairs near and far are
// connected, and alone is not. Posting to slow never ends.
func fakeInstance() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	svc, err := plugintest.NewFake(ctx, dataplane.Config{Mirror: dataplane.MirrorConfig{Path: os.Args[1] + ".counters.mirror"}, QueuePairs: []dataplane.QueuePair{
		{Name: "near", Device: "rxe0", Connect: "far", Counters: []dataplane.CompletionCounter{
			{Name: "near-sent", Operations: []dataplane.Operation{dataplane.Send, dataplane.RDMAWrite}},
		}},
		{Name: "far", Device: "rxe0", Counters: []dataplane.CompletionCounter{{Name: "far-received", Operations: []dataplane.Operation{dataplane.Recv}}}},
		{Name: "alone", Device: "rxe1"},
	}}, nil)
	if err == nil {
		err = serveControl(ctx, os.Args[1], slowInstance{svc, os.Args[1] + ".posting", new(atomic.Bool)})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// serveControl serves svc on a control socket at path until ctx ends.
func serveControl(ctx context.Context, path string, svc dataplane.Service) error {
	control, err := plugin.ListenControl(path, nil)
	if err != nil {
		return err
	}
	return control.Serve(ctx, svc)
}

// slowInstance completes 300 operations of the queue pair slow. Then it creates the file begun, and waits until its
// caller gives up.
type slowInstance struct {
	dataplane.Service
	begun string
	died  *atomic.Bool // after the flow last was added every call fails: the plugin is gone
}

func (s slowInstance) AddFlows(ctx context.Context, flows ...flow.Flow) ([]dataplane.Placement, error) {
	placed, err := s.Service.AddFlows(ctx, flows...)
	s.died.Store(flows[0].Name == "last")
	return placed, err
}

func (s slowInstance) Placements(ctx context.Context, names ...string) ([]dataplane.Placement, error) {
	if s.died.Load() {
		return nil, dataplane.ErrUnavailable
	}
	return s.Service.Placements(ctx, names...)
}

func (s slowInstance) Info(ctx context.Context) (dataplane.Info, error) {
	if s.died.Load() {
		return dataplane.Info{}, dataplane.ErrUnavailable
	}
	return s.Service.Info(ctx)
}

func (s slowInstance) QueuePairs() dataplane.QueuePairs {
	return slowQueuePairs{s.Service.QueuePairs(), s.begun}
}

// slowQueuePairs has a queue pair "slow", to which posting lasts until the caller gives up.
type slowQueuePairs struct {
	dataplane.QueuePairs
	begun string
}

func (s slowQueuePairs) Post(ctx context.Context, name string, op dataplane.Operation, count int) (dataplane.Posted, error) {
	if name != "slow" {
		return s.QueuePairs.Post(ctx, name, op, count)
	}
	if err := os.WriteFile(s.begun, nil, 0o600); err != nil {
		return dataplane.Posted{}, err
	}
	<-ctx.Done()
	return dataplane.Posted{Completed: 298, Errors: 2}, ctx.Err()
}

// patience limits every wait of a script.
const patience = time.Minute

// cmdAwait implements "await FILE [REGEXP]": it waits until the file exists and its content matches.
func cmdAwait(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 || len(args) > 2 {
		ts.Fatalf("usage: await FILE [REGEXP]")
	}
	re := regexp.MustCompile("")
	if len(args) == 2 {
		re = regexp.MustCompile("(?m)" + args[1])
	}
	var data []byte
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		st, err := os.Stat(ts.MkAbs(args[0]))
		if err != nil {
			continue
		}
		if len(args) == 1 {
			return
		}
		if data, err = os.ReadFile(ts.MkAbs(args[0])); err == nil && st.Mode().IsRegular() && re.Match(data) {
			return
		}
	}
	ts.Fatalf("awaiting %v in vain; there is:\n%s", args, data)
}

// cmdEventually implements "eventually COMMAND ARGS…": it repeats the command until it succeeds.
func cmdEventually(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 {
		ts.Fatalf("usage: eventually COMMAND [ARGS…]")
	}
	var err error
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if err = ts.Exec(args[0], args[1:]...); err == nil {
			return
		}
	}
	ts.Fatalf("%v: %v", args, err)
}

// Each command line of testdata/script runs as a process of its own.
func TestScriptsPrintWhatTheySay(t *testing.T) {
	schemas, err := filepath.Abs(schemaDir)
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Setup: func(env *testscript.Env) error {
			env.Setenv("FLOWTALLY_SCHEMAS", schemas)
			return nil
		},
		Condition:           condition,
		Dir:                 "testdata/script",
		RequireUniqueNames:  true,
		RequireExplicitExec: true,
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"exits":      cmdExits,
			"json":       cmdJSON,
			"await":      cmdAwait,
			"eventually": cmdEventually,
			"schemas":    cmdSchemas,
		},
	})
}

// condition tells a script about the machine. "netns" means that the process may make network namespaces and attach
// programs, and "ipsec" that the kernel lists IPsec policies.
func condition(name string) (bool, error) {
	switch name {
	case "netns":
		return runtime.GOOS == "linux" && os.Geteuid() == 0, nil
	case "ipsec":
		return exec.Command("ip", "xfrm", "policy", "list").Run() == nil, nil
	}
	return false, fmt.Errorf("unknown condition %q", name)
}

// cmdExits implements "exits CODE COMMAND ARGS…": the command must end with exactly this code.
func cmdExits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND [ARGS…]")
	}
	code := "0"
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		ts.Logf("%v", err)
		code = err.Error()
		if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
			code = strconv.Itoa(exit.ExitCode())
		}
	}
	if code != args[0] {
		ts.Fatalf("%v ended with %s, want %s", args[1:], code, args[0])
	}
}
