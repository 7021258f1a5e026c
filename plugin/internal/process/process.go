package plugin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"

	hclog "github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin/runner"

	"github.com/flowtally/flowtally/internal/verbpage"
)

// drainTime is how long the output of a dead plugin is still read: a child of its own may
// hold the pipes open for ever.
const drainTime = 500 * time.Millisecond

// child is one plugin process. It is go-plugin's runner, so that the process
// can be killed while go-plugin waits for it, and its end has a cause.
type child struct {
	path string
	file *os.File // executed in place of path, unless nil; the caller closes it
	args []string
	env  []string // beside what go-plugin adds
	dir  string   // of the socket; "" until go-plugin made it

	rdma  bool   // it may count in RDMA devices
	group string // of those who wait on the mirror, "": none

	exited chan struct{} // closed when the process is reaped; cause and last are set then
	cause  string        // "exit status 2", "signal: killed"
	last   verbCall      // the verb in which it died; of no verb's name: in none

	cmd            *exec.Cmd
	stdout, stderr *os.File
	host           *os.File       // its closing tells the plugin that the host is gone
	verbs          *verbpage.Page // in which the plugin names its verbs; nil: there is none

	mu      sync.Mutex
	hello   []byte // the first bytes of stdout, where the handshake is
	pid     int
	reaped  bool
	aborted bool // Kill was asked for
	killed  bool // and found a process to kill
}

var _ runner.Runner = (*child)(nil)

func newChild(path string, file *os.File, args, env []string) *child {
	return &child{path: path, file: file, args: args, env: env, exited: make(chan struct{})}
}

// prepare is go-plugin's RunnerFunc. spec holds the environment that go-plugin asks for.
func (c *child) prepare(_ hclog.Logger, spec *exec.Cmd, dir string) (runner.Runner, error) {
	c.dir = dir
	c.cmd = exec.Command(c.path, c.args...)
	c.cmd.Env = append(append(c.cmd.Env, c.env...), spec.Env...)
	return c, nil
}

// Start implements runner.Runner.
func (c *child) Start(context.Context) error {
	var theirs []*os.File
	pipe := func() (r, w *os.File, err error) {
		if r, w, err = os.Pipe(); err != nil {
			return nil, nil, fmt.Errorf("making a pipe: %w", err)
		}
		return r, w, nil
	}
	defer func() {
		for _, f := range theirs {
			f.Close()
		}
	}()
	var hostEnd, out, errw *os.File
	var err error
	if c.stdout, out, err = pipe(); err != nil {
		return err
	}
	theirs = append(theirs, out)
	if c.stderr, errw, err = pipe(); err != nil {
		c.release()
		return err
	}
	theirs = append(theirs, errw)
	if hostEnd, c.host, err = pipe(); err != nil {
		c.release()
		return err
	}
	theirs = append(theirs, hostEnd)
	c.cmd.Stdout, c.cmd.Stderr = out, errw
	c.cmd.ExtraFiles = []*os.File{hostEnd} // descriptor 3 over there
	c.cmd.Env = append(c.cmd.Env, hostFDEnv+"=3")
	if page, file, err := verbpage.New(); err == nil { // without one a crash is only not explained
		c.verbs = page
		theirs = append(theirs, file)
		c.cmd.ExtraFiles = append(c.cmd.ExtraFiles, file)
		c.cmd.Env = append(c.cmd.Env, verbsFDEnv+"=4")
	}
	c.execute()
	ownGroup(c.cmd)

	c.mu.Lock()
	defer c.mu.Unlock()
	if c.aborted {
		err = context.Canceled
	} else {
		err = c.startConfined()
	}
	if err != nil {
		c.release()
		c.cause = err.Error()
		close(c.exited)
		return err
	}
	c.pid = c.cmd.Process.Pid
	go c.reap()
	return nil
}

func (c *child) release() {
	for _, f := range []*os.File{c.stdout, c.stderr, c.host} {
		if f != nil {
			f.Close()
		}
	}
	_ = c.verbs.Close()
}

func (c *child) reap() {
	err := c.cmd.Wait()
	c.mu.Lock()
	c.reaped = true
	c.mu.Unlock()
	c.cause = "exit status 0"
	if err != nil {
		c.cause = err.Error()
	}
	c.last.device, c.last.verb, _ = c.verbs.Last()
	close(c.exited)
	time.Sleep(drainTime)
	c.release()
}

// Wait implements runner.AttachedRunner.
func (c *child) Wait(context.Context) error {
	<-c.exited
	if c.cause != "exit status 0" {
		return errors.New(c.cause)
	}
	return nil
}

// Kill implements runner.AttachedRunner: the process and what it started.
func (c *child) Kill(context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.aborted = true
	if c.pid == 0 || c.reaped {
		return nil
	}
	c.killed = true
	return killGroup(c.cmd.Process)
}

// ended is the cause of death of a process that ended by itself, not by Kill.
func (c *child) ended() (cause string, ok bool) {
	select {
	case <-c.exited:
	default:
		return "", false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cause, !c.killed
}

// The rest of runner.Runner.
func (c *child) Stdout() io.ReadCloser           { return &greeting{child: c, File: c.stdout} }
func (c *child) Stderr() io.ReadCloser           { return c.stderr }
func (c *child) Name() string                    { return c.path }
func (c *child) Diagnose(context.Context) string { return "" }

func (c *child) ID() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pid == 0 {
		return ""
	}
	return strconv.Itoa(c.pid)
}

// PluginToHost implements runner.AddrTranslator: both live in one file system.
func (c *child) PluginToHost(network, addr string) (string, string, error) { return network, addr, nil }

// HostToPlugin implements runner.AddrTranslator.
func (c *child) HostToPlugin(network, addr string) (string, string, error) { return network, addr, nil }

// greeting is the plugin's stdout. It keeps the first bytes, which say what the
// plugin speaks, and holds the end of file back until the process is reaped: go-plugin
// kills at the end of file, and the cause of death would be ours and not the plugin's.
type greeting struct {
	*os.File
	child *child
}

func (g *greeting) Read(p []byte) (int, error) {
	n, err := g.File.Read(p)
	c := g.child
	c.mu.Lock()
	c.hello = append(c.hello, p[:min(n, maxHello-len(c.hello))]...)
	c.mu.Unlock()
	if err != nil {
		select {
		case <-c.exited:
		case <-time.After(drainTime):
		}
	}
	return n, err
}

// maxHello bounds what is kept of stdout; the version stands within the first bytes.
const maxHello = 256

// version is the protocol's major version that the plugin offers, 0 when it said none.
func (c *child) version() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	fields := strings.SplitN(string(c.hello), "|", 3)
	if len(fields) < 3 {
		return 0
	}
	v, err := strconv.Atoi(fields[1])
	if err != nil {
		return 0
	}
	return v
}
