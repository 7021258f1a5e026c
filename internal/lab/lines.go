package lab

import (
	"bufio"
	"fmt"
	"io"
	"os/exec"
	"testing"
)

// Lines is a running program that prints a line for each line of its input, and ends with its input.
type Lines struct {
	t    testing.TB
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Scanner
	done bool
}

// StartLines starts cmd. The end of the test ends its input, and the test fails unless the program then succeeds.
func StartLines(t testing.TB, cmd *exec.Cmd) *Lines {
	t.Helper()
	if cmd.Stderr == nil {
		cmd.Stderr = t.Output()
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	l := &Lines{t: t, cmd: cmd, in: in, out: bufio.NewScanner(out)}
	t.Cleanup(func() {
		if err := l.End(); err != nil {
			t.Errorf("%s: %v", cmd, err)
		}
	})
	return l
}

// Next returns the next line of the output.
func (l *Lines) Next() string {
	l.t.Helper()
	if !l.out.Scan() {
		l.t.Fatalf("%s ended: %v", l.cmd, l.out.Err())
	}
	return l.out.Text()
}

// Say sends a line and returns the next line of the output.
func (l *Lines) Say(format string, args ...any) string {
	l.t.Helper()
	l.Send(format, args...)
	return l.Next()
}

// Send sends a line.
func (l *Lines) Send(format string, args ...any) { fmt.Fprintf(l.in, format+"\n", args...) }

// Kill kills the program and returns when it has ended.
func (l *Lines) Kill() {
	l.cmd.Process.Kill()
	l.cmd.Wait()
	l.done = true
}

// End ends the program's input and waits for its end. It is idempotent.
func (l *Lines) End() error {
	if l.done {
		return nil
	}
	l.done = true
	l.in.Close()
	return l.cmd.Wait()
}
