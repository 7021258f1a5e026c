// Command flowtally-plugin is the privileged process that counts. `flowtally run`, or any program that calls
// plugin.Launch, starts it and talks to it over gRPC. This package only connects the engine with package plugin.
package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime"
	"runtime/debug"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine"
	"github.com/flowtally/flowtally/plugin"
)

func main() {
	if code, is := engine.TrialMain(); is {
		os.Exit(code)
	}
	if len(os.Args) == 2 && (os.Args[1] == "--version" || os.Args[1] == "-version") {
		printVersion(os.Stdout)
		return
	}
	plugin.Confine()
	os.Exit(plugin.Serve(plugin.ServeOptions{Factory: open}))
}

// open is the plugin's factory.
func open(ctx context.Context, cfg dataplane.Config, l *slog.Logger) (dataplane.Service, error) {
	e, err := engine.New(ctx, cfg, engine.Options{Logger: l})
	if err != nil {
		return nil, err // never a nil *Engine in a Service
	}
	return e, nil
}

// printVersion prints the version of this binary and of the protocol.
func printVersion(w io.Writer) {
	version, commit := "unknown", "unknown"
	if info, ok := debug.ReadBuildInfo(); ok {
		version = info.Main.Version
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				commit = s.Value
			}
		}
	}
	fmt.Fprintf(w, "flowtally-plugin %s\ncommit %s\n%s %s/%s\nplugin protocol %d\n",
		version, commit, runtime.Version(), runtime.GOOS, runtime.GOARCH, plugin.ProtocolVersion)
}
