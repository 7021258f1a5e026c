package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/internal/lab/demo"
	"github.com/flowtally/flowtally/plugin"
)

func main() {
	if err := lab.Isolate("ZZ"); err != nil {
		panic(err)
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	rep, err := demo.Run(context.Background(), demo.Options{For: 5 * time.Second, Mode: demo.Mode(os.Args[1]), Logger: log,
		Launch: func(ctx context.Context, cfg dataplane.Config) (dataplane.Service, error) {
			return plugin.Launch(ctx, plugin.Options{Path: "/tmp/labzz/plug", Config: cfg, Logger: log})
		}})
	fmt.Fprintln(os.Stderr, err)
	e := json.NewEncoder(os.Stdout)
	for _, f := range rep.Flows {
		e.Encode(f)
	}
	fmt.Println(rep.Exact)
}
