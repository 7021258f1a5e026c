package shmrows

import (
	"bufio"
	"bytes"
	"context"
	_ "embed"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/flowtally/flowtally/internal/bench"
	"github.com/flowtally/flowtally/probe"
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
		p, err := startProgram(open, bin, strconv.Itoa(env.CPU), m.path, "c17")
		if err != nil {
			return nil, err
		}
		side := func(which string) bench.Side {
			return func(_ context.Context, n int) (float64, error) { return p.ask(which, n) }
		}
		return &bench.Sides{Ours: side("ours"), Ref: side("ref")}, nil
	})
}

// compile builds a C program that includes flowtally.h, once in a run.
func compile(ctx context.Context, dir, name string, source []byte) (string, error) {
	cc, err := exec.LookPath("cc")
	if err != nil {
		return "", &probe.UnsupportedError{Feature: "C reader", Reason: "no C compiler: cc is not on PATH",
			Fix: "install gcc or clang"}
	}
	if err := include.Write(dir); err != nil {
		return "", err
	}
	src, bin := filepath.Join(dir, name+".c"), filepath.Join(dir, name)
	if err := os.WriteFile(src, source, 0o644); err != nil {
		return "", fmt.Errorf("writing %s.c: %w", name, err)
	}
	if _, err := os.Stat(bin); err == nil {
		return bin, nil
	}
	out, err := exec.CommandContext(ctx, cc, "-std=c11", "-O2", "-pthread", "-I", dir, "-o", bin, src).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("compiling %s.c with %s: %w: %s", name, cc, err, bytes.TrimSpace(out))
	}
	return bin, nil
}

// program is a running C side.
type program struct {
	stdin  io.WriteCloser
	stdout *bufio.Reader
	stderr *bytes.Buffer
}

func startProgram(open *bench.Closers, bin string, args ...string) (*program, error) {
	// Not bound to a context: closing its input ends it.
	cmd := exec.Command(bin, args...)
	p := &program{stderr: new(bytes.Buffer)}
	cmd.Stderr = p.stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("making a pipe to %s: %w", bin, err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("making a pipe to %s: %w", bin, err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", bin, err)
	}
	p.stdin, p.stdout = stdin, bufio.NewReader(stdout)
	open.Add(func() error {
		_ = stdin.Close() // the program reads the end of its input and exits
		if err := cmd.Wait(); err != nil {
			return fmt.Errorf("%s: %w: %s", filepath.Base(bin), err, strings.TrimSpace(p.stderr.String()))
		}
		return nil
	})
	return p, nil
}

// ask has the program run n operations of a side.
func (p *program) ask(side string, n int) (float64, error) {
	if _, err := fmt.Fprintf(p.stdin, "%s %d\n", side, n); err != nil {
		return 0, fmt.Errorf("asking the C side: %w", err)
	}
	line, err := p.stdout.ReadString('\n')
	if err != nil {
		return 0, fmt.Errorf("reading the reply of the C side: %w", err)
	}
	ns, err := strconv.ParseFloat(strings.TrimSpace(line), 64)
	if err != nil {
		return 0, fmt.Errorf("reading the reply of the C side: %w", err)
	}
	return ns, nil
}
