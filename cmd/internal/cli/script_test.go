package cli

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
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
	})
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
