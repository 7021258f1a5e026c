package child

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	hclog "github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin/runner"

	"github.com/flowtally/flowtally/internal/verbpage"
)

// DrainTime bounds the reading of a dead plugin's output: a process that the plugin started may hold the
// pipes open for ever.
const DrainTime = 500 * time.Millisecond

// Process is one plugin process. It implements go-plugin's runner, so that the process can be killed while
// go-plugin waits for it, and so that the cause of its end is known.
type Process struct {
	// Set before Start.
	RDMA   bool     // it may count in RDMA devices
	Groups []string // of files beside the mirror; "" stands for none

	Dir string // directory of the socket; "" until go-plugin made it

	Exited chan struct{} // closed when the process is reaped; Cause is valid then
	Cause  string        // "exit status 2", "signal: killed"

	path string
	file *os.File // executed in place of path, unless nil; the caller closes it
	args []string
	env  []string // in addition to go-plugin's

	cmd            *exec.Cmd
	stdout, stderr *os.File
	host           *os.File       // its closing tells the plugin that the host is gone
	verbs          *verbpage.Page // the plugin names its verbs in it; nil: there is no page
	last           verbCall       // the current verb at the end of the process; zero: outside of verbs

	mu      sync.Mutex
	hello   []byte // the first bytes of stdout, which hold the handshake
	socket  string // that the handshake names; "" before it
	pid     int
	reaped  bool
	aborted bool // Kill was called
	killed  bool // Kill found a process to kill
}

var _ runner.Runner = (*Process)(nil)

// New returns a process that executes file, or path if file is nil, with args and env.
func New(path string, file *os.File, args, env []string) *Process {
	return &Process{path: path, file: file, args: args, env: env, Exited: make(chan struct{})}
}

// Prepare is go-plugin's RunnerFunc. spec holds go-plugin's environment.
func (p *Process) Prepare(_ hclog.Logger, spec *exec.Cmd, dir string) (runner.Runner, error) {
	p.Dir = dir
	p.cmd = exec.Command(p.path, p.args...)
	p.cmd.Env = append(append(p.cmd.Env, p.env...), spec.Env...)
	return p, nil
}

// Start implements runner.Runner.
func (p *Process) Start(context.Context) error {
	childEnds, err := p.openPipes()
	defer func() {
		for _, f := range childEnds {
			f.Close()
		}
	}()
	if err != nil {
		p.release()
		return err
	}
	p.execute()
	ownGroup(p.cmd)

	p.mu.Lock()
	defer p.mu.Unlock()
	if p.aborted {
		err = context.Canceled
	} else {
		err = p.startConfined()
	}
	if err != nil {
		p.release()
		p.Cause = err.Error()
		close(p.Exited)
		return err
	}
	p.pid = p.cmd.Process.Pid
	go p.reap()
	return nil
}

// openPipes gives the command its stdout and stderr, the pipe of the host's life, and the page of verbs. The caller closes
// the child's ends, also after an error. release closes this process's.
func (p *Process) openPipes() (childEnds []*os.File, err error) {
	pipe := func() (r, w *os.File, err error) {
		if r, w, err = os.Pipe(); err != nil {
			return nil, nil, fmt.Errorf("making a pipe: %w", err)
		}
		return r, w, nil
	}

	var stdout, stderr, host *os.File
	if p.stdout, stdout, err = pipe(); err != nil {
		return childEnds, err
	}
	childEnds = append(childEnds, stdout)
	if p.stderr, stderr, err = pipe(); err != nil {
		return childEnds, err
	}
	childEnds = append(childEnds, stderr)
	if host, p.host, err = pipe(); err != nil {
		return childEnds, err
	}
	childEnds = append(childEnds, host)

	p.cmd.Stdout = stdout
	p.cmd.Stderr = stderr
	p.cmd.ExtraFiles = []*os.File{host} // descriptor 3 of the plugin
	p.cmd.Env = append(p.cmd.Env, HostFDEnv+"=3")

	page, file, err := verbpage.New()
	if err != nil {
		return childEnds, nil // without a page, a crash has no verb
	}
	p.verbs = page
	p.cmd.ExtraFiles = append(p.cmd.ExtraFiles, file)
	p.cmd.Env = append(p.cmd.Env, VerbsFDEnv+"=4")
	return append(childEnds, file), nil
}

// Run executes the process to its end, without a host's pipes. An error has the first line that it wrote to stderr.
func (p *Process) Run(ctx context.Context) error {
	p.cmd = exec.Command(p.path, p.args...)
	p.cmd.Env = p.env
	var said bytes.Buffer
	p.cmd.Stderr = &said
	p.cmd.WaitDelay = DrainTime
	p.execute()
	ownGroup(p.cmd)
	if err := p.startConfined(); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = killGroup(p.cmd.Process) })
	defer stop()
	err := p.cmd.Wait()

	switch line, _, _ := strings.Cut(said.String(), "\n"); {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("running %s: %w", p.path, ctx.Err())
	case line != "":
		return errors.New(line)
	}
	return fmt.Errorf("running %s: %w", p.path, err)
}

// release closes this process's ends of the pipes, and the page on which the plugin names its current verb.
func (p *Process) release() {
	for _, f := range []*os.File{p.stdout, p.stderr, p.host} {
		if f != nil {
			f.Close()
		}
	}
	_ = p.verbs.Close()
}

// reap waits for the end of the process and notes its cause. It leaves the pipes open for a while, for the last output.
func (p *Process) reap() {
	err := p.cmd.Wait()
	p.mu.Lock()
	p.reaped = true
	p.mu.Unlock()

	p.Cause = "exit status 0"
	if err != nil {
		p.Cause = err.Error()
	}
	p.last.device, p.last.verb, _ = p.verbs.Last()
	close(p.Exited)

	time.Sleep(DrainTime)
	p.release()
}

// Wait implements runner.AttachedRunner.
func (p *Process) Wait(context.Context) error {
	<-p.Exited
	if p.Cause != "exit status 0" {
		return errors.New(p.Cause)
	}
	return nil
}

// Kill implements runner.AttachedRunner. It kills the process group.
func (p *Process) Kill(context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.aborted = true
	if p.pid == 0 || p.reaped {
		return nil
	}
	p.killed = true
	return killGroup(p.cmd.Process)
}

// Ended returns the cause of the end of a process that ended without Kill.
func (p *Process) Ended() (cause string, ok bool) {
	select {
	case <-p.Exited:
	default:
		return "", false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.Cause, !p.killed
}

// The rest of runner.Runner.
func (p *Process) Stdout() io.ReadCloser           { return &greeting{process: p, File: p.stdout} }
func (p *Process) Stderr() io.ReadCloser           { return p.stderr }
func (p *Process) Name() string                    { return p.path }
func (p *Process) Diagnose(context.Context) string { return "" }

func (p *Process) ID() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pid == 0 {
		return ""
	}
	return strconv.Itoa(p.pid)
}

// PluginToHost implements runner.AddrTranslator. The plugin says where it listens. It is believed if that is a unix socket
// in the directory that the host made for it: whoever has taken it over does not choose whom the host calls.
func (p *Process) PluginToHost(network, addr string) (string, string, error) {
	if network != "unix" || filepath.Dir(addr) != filepath.Clean(p.Dir) {
		return "", "", fmt.Errorf("it names the address %s %q in its handshake: only a unix socket in %s is dialed", network, addr, p.Dir)
	}
	p.mu.Lock()
	p.socket = addr
	p.mu.Unlock()
	return network, addr, nil
}

// Dial connects to the plugin's socket. A link in its place is not followed.
func (p *Process) Dial(ctx context.Context, _ string) (net.Conn, error) {
	p.mu.Lock()
	path := p.socket
	p.mu.Unlock()
	conn, err := dialSocket(ctx, path)
	if err != nil {
		return nil, fmt.Errorf("dialing the plugin's socket: %w", err)
	}
	return conn, nil
}

// HostToPlugin implements runner.AddrTranslator.
func (p *Process) HostToPlugin(network, addr string) (string, string, error) {
	return network, addr, nil
}

// greeting is the plugin's stdout. It keeps the first bytes, which hold the protocol version. It delays the
// end of file until the process is reaped: go-plugin kills the process at the end of file, and the cause of
// the end would be Kill.
type greeting struct {
	*os.File
	process *Process
}

func (g *greeting) Read(b []byte) (int, error) {
	n, err := g.File.Read(b)
	p := g.process
	p.mu.Lock()
	p.hello = append(p.hello, b[:min(n, maxHello-len(p.hello))]...)
	p.mu.Unlock()
	if err != nil {
		select {
		case <-p.Exited:
		case <-time.After(DrainTime):
		}
	}
	return n, err
}

// maxHello bounds the kept bytes of stdout. The version is in the first ones.
const maxHello = 256

// Version returns the major version of the protocol that the plugin offers, or 0 if it offered none.
func (p *Process) Version() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	fields := strings.SplitN(string(p.hello), "|", 3)
	if len(fields) < 3 {
		return 0
	}
	v, err := strconv.Atoi(fields[1])
	if err != nil {
		return 0
	}
	return v
}
