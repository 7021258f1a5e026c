package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine"
	"github.com/flowtally/flowtally/plugin"
	"github.com/flowtally/flowtally/plugin/plugintest"
)

// TestMain makes this test binary the programs that the scripts run.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"flowtally": func() {
			ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
			code := Main(ctx, os.Stdin, os.Stdout, os.Stderr, os.Args[1:])
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
	})
}

// fakeInstance is "fakeinstance SOCKET": an instance in memory behind a real
// control socket, until SIGINT.
func fakeInstance() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	svc, err := plugintest.NewFake(ctx, dataplane.Config{}, nil)
	if err == nil {
		err = plugin.ServeControl(ctx, os.Args[1], svc)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// cmdAwait is "await FILE…": waits until all of them exist.
func cmdAwait(ts *testscript.TestScript, neg bool, args []string) {
	for _, name := range args {
		for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
			if _, err := os.Stat(ts.MkAbs(name)); err == nil {
				break
			}
			if time.Now().After(deadline) {
				ts.Fatalf("%s did not appear", name)
			}
		}
	}
}

// TestScripts runs every command line of testdata/script end to end, each as a
// process of its own.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireUniqueNames:  true,
		RequireExplicitExec: true,
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"exits": cmdExits,
			"json":  cmdJSON,
			"await": cmdAwait,
		},
	})
}

// cmdExits is "exits CODE COMMAND ARGS…": the command ends with exactly CODE.
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
