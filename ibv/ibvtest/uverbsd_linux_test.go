package ibvtest_test

import (
	"bytes"
	"errors"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/flowtally/flowtally/ibv/ibvtest"
	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/internal/lab/need"
)

// If the command does not start, it must say why.
func TestUverbsdEndsAsItsCommandDoes(t *testing.T) {
	server := libraries(t, "strict", "-Werror").Server
	need.Command(t, "seccomp", server, "true")
	for _, test := range []struct {
		name   string
		args   []string
		status int
		stderr string
	}{
		{"succeeds", []string{"true"}, 0, ""},
		{"fails", []string{"sh", "-c", "exit 7"}, 7, ""},
		{"is killed", []string{"sh", "-c", "kill -9 $$"}, 128 + 9, ""},
		{"missing", nil, 2, "usage: uverbsd COMMAND"},
		{"an option", []string{"--help"}, 2, "usage: uverbsd COMMAND"},
		{"not found", []string{"/nowhere/program"}, 127, "uverbsd: executing /nowhere/program: No such file or directory"},
		{"not a program", []string{"/etc/passwd"}, 126, "uverbsd: executing /etc/passwd: Permission denied"},
		{"a second listener", []string{server, "true"}, 125, "uverbsd: installing the seccomp filter: Device or resource busy"},
		{"forwards a signal", []string{"sh", "-c", "trap 'exit 3' TERM; kill -TERM $PPID; while :; do sleep 0.01; done"}, 3, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			cmd := exec.Command(server, test.args...)
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			var exit *exec.ExitError
			if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
				t.Fatal(err)
			}
			if got := cmd.ProcessState.ExitCode(); got != test.status || !strings.Contains(stderr.String(), test.stderr) {
				t.Errorf("status %d, want %d; stderr %q, want %q", got, test.status, &stderr, test.stderr)
			}
		})
	}
}

// A child makes calls with arguments in its own memory. It shares the objects of the file, which
// outlive it. If a child dies within a call, the server must continue to serve the others.
func TestUverbsdChildUsesItsParentsDescriptor(t *testing.T) {
	need.Command(t, "seccomp", libraries(t, "strict", "-Werror").Server, "true")
	calls := filepath.Join(t.TempDir(), "calls")
	c := newUVClient(t, served, ibvtest.Env{
		Delay:      []ibvtest.Delay{{Verb: "QUERY_PORT", Time: time.Hour}},
		Statistics: calls,
	}, 0)
	c.context()
	parents := c.pd()
	c.Say("fork")
	childs := c.pd()
	if parents == childs {
		t.Errorf("two protection domains have the handle %d", parents)
	}
	if err, _ := c.call(objPD, 0, uvMLX5, "ok", handle(0, parents)); err != 0 {
		t.Errorf("a child destroys the protection domain of its parent: %v", err)
	}
	if got := c.Say("exit"); got != "back" {
		t.Fatal(got)
	}
	if err, _ := c.call(objPD, 0, uvMLX5, "ok", handle(0, parents)); err != syscall.ENOENT {
		t.Errorf("destroying the protection domain that the child destroyed: %v", err)
	}
	if err, _ := c.call(objPD, 0, uvMLX5, "ok", handle(0, childs)); err != 0 {
		t.Errorf("destroying the protection domain of the child that ended: %v", err)
	}
	for range 20 {
		pid, err := strconv.Atoi(c.Say("fork"))
		if err != nil {
			t.Fatal(err)
		}
		before := asked(t, calls)
		c.Send("call %d %d %d ok %s %s", objDevice, queryPort, uvMLX5, value(0, 8, 1), output(1, 48))
		lab.Eventually(t, "the call arrives", func() bool { return asked(t, calls) > before })
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if got := c.Next(); got != "back" {
			t.Fatal(got)
		}
		c.pd()
	}
}

func asked(t *testing.T, statistics string) uint64 {
	t.Helper()
	s, err := ibvtest.ReadStatistics(statistics)
	if err != nil {
		t.Fatal(err)
	}
	return s["QUERY_PORT"]
}
