// Package cside runs the sides of the bench that are C programs: compiled when the row is opened, in processes of
// their own, which take the times themselves and are asked over a pipe.
package cside

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/flowtally/flowtally/internal/bench"
	"github.com/flowtally/flowtally/probe"
)

// Compile builds dir/name from C source, unless it exists. The flags stand behind the source, where libraries belong.
func Compile(ctx context.Context, dir, name string, source []byte, flags ...string) (string, error) {
	cc, err := exec.LookPath("cc")
	if err != nil {
		return "", &probe.UnsupportedError{
			Feature: "C compiler",
			Reason:  "no C compiler: cc is not on PATH",
			Fix:     "install gcc or clang",
		}
	}

	bin := filepath.Join(dir, name)
	if _, err := os.Stat(bin); err == nil {
		return bin, nil
	}
	src := bin + ".c"
	if err := os.WriteFile(src, source, 0o644); err != nil {
		return "", fmt.Errorf("writing %s.c: %w", name, err)
	}
	args := append([]string{"-O2", "-o", bin, src}, flags...)
	out, err := exec.CommandContext(ctx, cc, args...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("compiling %s.c with %s: %w: %s", name, cc, err, bytes.TrimSpace(out))
	}
	return bin, nil
}

// Program is a running C side, or another program that answers in the same way.
type Program struct {
	name   string
	stdin  io.WriteCloser
	stdout *bufio.Reader
	kill   func() error
}

// Start starts a program. It ends when open is closed.
func Start(open *bench.Closers, bin string, args ...string) (*Program, error) {
	// Not bound to a context: closing its input ends it.
	cmd := exec.Command(bin, args...)
	stderr := new(bytes.Buffer)
	cmd.Stderr = stderr
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

	open.Add(func() error {
		_ = stdin.Close() // the program reads the end of its input and exits
		if err := cmd.Wait(); err != nil {
			return fmt.Errorf("%s: %w: %s", filepath.Base(bin), err, strings.TrimSpace(stderr.String()))
		}
		return nil
	})
	return &Program{
		name:   filepath.Base(bin),
		stdin:  stdin,
		stdout: bufio.NewReader(stdout),
		kill:   cmd.Process.Kill,
	}, nil
}

// Ask has the program run n operations of a side, and returns the nanoseconds of one.
func (p *Program) Ask(side string, n int) (float64, error) {
	if _, err := fmt.Fprintf(p.stdin, "%s %d\n", side, n); err != nil {
		return 0, fmt.Errorf("asking %s: %w", p.name, err)
	}
	return p.reply()
}

// Ready waits for the number that a program writes when it is ready. It kills a program that is not ready within d.
func (p *Program) Ready(d time.Duration) error {
	late := time.AfterFunc(d, func() { _ = p.kill() })
	defer late.Stop()
	_, err := p.reply()
	return err
}

// reply reads a line: a number, or "error: " and the reason.
func (p *Program) reply() (float64, error) {
	line, err := p.stdout.ReadString('\n')
	if err != nil {
		return 0, fmt.Errorf("reading the reply of %s: %w", p.name, err)
	}
	if reason, failed := strings.CutPrefix(strings.TrimSpace(line), "error: "); failed {
		return 0, fmt.Errorf("%s: %s", p.name, reason)
	}
	ns, err := strconv.ParseFloat(strings.TrimSpace(line), 64)
	if err != nil {
		return 0, fmt.Errorf("reading the reply of %s: %w", p.name, err)
	}
	return ns, nil
}
