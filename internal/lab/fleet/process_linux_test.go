package fleet

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"regexp"
	"sync"
	"syscall"
	"testing"
	"time"
)

// patience is the longest wait for a state, on a machine that other processes use too.
const patience = 2 * time.Minute

// process is a program that runs until the test ends.
type process struct {
	t     *testing.T
	cmd   *exec.Cmd
	mu    sync.Mutex
	lines []string
	ended chan struct{}
	err   error
	once  sync.Once
}

// nobody is the user and the group of a process without privilege.
const nobody = 65534

// start starts cmd, whose standard error the test logs. start is called on a thread in the namespace that it is to run in.
func start(t *testing.T, cmd *exec.Cmd) *process {
	t.Helper()
	p := &process{t: t, cmd: cmd, ended: make(chan struct{})}
	out, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = new(syscall.SysProcAttr)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		p.collect(out)
		p.err = cmd.Wait()
		close(p.ended)
	}()
	t.Cleanup(p.stop)
	return p
}

func (p *process) collect(out io.Reader) {
	for s := bufio.NewScanner(out); s.Scan(); {
		p.mu.Lock()
		p.lines = append(p.lines, s.Text())
		p.mu.Unlock()
	}
}

// stop ends the process by SIGTERM, and waits for its end. Idempotent.
func (p *process) stop() {
	p.once.Do(func() {
		p.cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-p.ended:
		case <-time.After(patience):
			p.cmd.Process.Signal(os.Kill)
			<-p.ended
			p.t.Errorf("%v did not end at SIGTERM", p.cmd.Args)
		}
		if p.t.Failed() {
			for _, line := range p.log() {
				p.t.Logf("%s: %s", p.cmd.Args[1], line)
			}
		}
	})
}

func (p *process) log() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.lines...)
}

// await waits for a line of the log that matches, and returns the submatches.
func (p *process) await(pattern string) []string {
	p.t.Helper()
	re := regexp.MustCompile(pattern)
	for end := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		for _, line := range p.log() {
			if m := re.FindStringSubmatch(line); m != nil {
				return m
			}
		}
		select {
		case <-p.ended:
			p.t.Fatalf("%v ended: %v\n%v", p.cmd.Args, p.err, p.log())
		default:
		}
		if time.Now().After(end) {
			p.t.Fatalf("%v logs no line like %s:\n%v", p.cmd.Args, pattern, p.log())
		}
	}
}
