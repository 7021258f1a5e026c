package main

import (
	"context"
	"log/slog"
	"os"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine"
	"github.com/flowtally/flowtally/plugin"
)

func main() {
	os.Exit(plugin.Serve(plugin.ServeOptions{Factory: func(ctx context.Context, cfg dataplane.Config, l *slog.Logger) (dataplane.Service, error) {
		return engine.New(ctx, cfg, engine.Options{Logger: l})
	}}))
}
