package shmrows

import (
	"context"
	_ "embed"
	"strconv"

	"github.com/flowtally/flowtally/internal/bench"
	"github.com/flowtally/flowtally/internal/bench/cside"
	"github.com/flowtally/flowtally/shm"
	"github.com/flowtally/flowtally/shm/include"
)

//go:embed src/read.c
var readC []byte

// openReadC: shm.read with flowtally.h, compiled here with cc -O2, in a process
// of its own on the same CPU. This process only tells it which side to run; it takes
// the times itself.
func openReadC(ctx context.Context, env bench.Env) (*bench.Sides, error) {
	return bench.Acquire(func(open *bench.Closers) (*bench.Sides, error) {
		bin, err := compile(ctx, env.Dir, "read", readC)
		if err != nil {
			return nil, err
		}
		m, err := newMirror(open, shm.BlockLen, 0)
		if err != nil {
			return nil, err
		}
		p, err := cside.Start(open, bin, strconv.Itoa(env.CPU), m.path, "c17")
		if err != nil {
			return nil, err
		}
		side := func(which string) bench.Side {
			return func(_ context.Context, n int) (float64, error) { return p.Ask(which, n) }
		}
		return &bench.Sides{Ours: side("ours"), Ref: side("ref")}, nil
	})
}

// compile builds a C program that includes flowtally.h, once in a run.
func compile(ctx context.Context, dir, name string, source []byte) (string, error) {
	if err := include.Write(dir); err != nil {
		return "", err
	}
	return cside.Compile(ctx, dir, name, source, "-std=c11", "-pthread", "-I", dir)
}
