//go:build !linux

package vethrows

import (
	"context"
	"runtime"

	"github.com/flowtally/flowtally/internal/bench"
	"github.com/flowtally/flowtally/probe"
)

type opener = func(context.Context, bench.Env) (*bench.Sides, error)

func openDrop(ruleset, key, int) opener  { return unsupported }
func openPoint(ruleset, int, int) opener { return unsupported }
func openCount(ruleset, key) opener      { return unsupported }

func unsupported(context.Context, bench.Env) (*bench.Sides, error) {
	return nil, &probe.UnsupportedError{Feature: "nftables", Reason: "this is " + runtime.GOOS + ", not Linux"}
}
