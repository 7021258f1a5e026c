//go:build !linux

package pollrows

import (
	"context"
	"runtime"

	"github.com/flowtally/flowtally/internal/bench"
	"github.com/flowtally/flowtally/probe"
)

var openWireLive, openWireMirror = unsupported, unsupported

func openIdle(int) func(context.Context, bench.Env) (*bench.Sides, error) { return unsupported }

func unsupported(context.Context, bench.Env) (*bench.Sides, error) {
	return nil, &probe.UnsupportedError{Feature: "eBPF", Reason: "this is " + runtime.GOOS + ", not Linux"}
}
