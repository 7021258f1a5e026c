package trial

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/flowtally/flowtally/internal/verbpage"
)

// try runs the process of a request. It returns the bytes that the process replied, and why the process did not end
// well. The error is why the process could not be started.
func (g *Guard) try(r Request) (reply []byte, why string, err error) {
	r.RDMA = g.opts.RDMA
	request, err := json.Marshal(r)
	if err != nil {
		return nil, "", fmt.Errorf("encoding the request of a trial: %w", err)
	}
	page, file, err := verbpage.New()
	if err != nil {
		return nil, "", err
	}
	defer page.Close()
	defer file.Close()
	out, in, err := os.Pipe()
	if err != nil {
		return nil, "", fmt.Errorf("making the pipe of a trial: %w", err)
	}
	defer out.Close()
	var wrote head
	cmd := &exec.Cmd{
		Path: g.opts.Command.Path, Args: g.opts.Command.Args, Stdin: bytes.NewReader(request), Stdout: &wrote, Stderr: &wrote,
		ExtraFiles: []*os.File{file, in}, WaitDelay: time.Second,
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // the signal also ends processes that the trial has started
	err = cmd.Start()
	in.Close()
	if err != nil {
		return nil, "", fmt.Errorf("starting a trial: %w", err)
	}
	read := make(chan []byte, 1)
	go func() {
		b, _ := io.ReadAll(io.LimitReader(out, maxReply)) // half a reply cannot be decoded
		read <- b
	}()
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	how := ""
	select {
	case err = <-done:
		if err == nil || errors.Is(err, exec.ErrWaitDelay) {
			if _, _, inside := page.Last(); !inside {
				_ = out.SetReadDeadline(time.Now().Add(time.Second)) // a process that the library started may hold the pipe
				return <-read, "", nil
			}
			err = errors.New("exit status 0") // the library has called exit
		}
		how = fmt.Sprintf("ended (%v)", err)
	case <-time.After(Bound):
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		select { // the kernel may hold the process in a call of the device
		case <-done:
		case <-time.After(time.Second):
		}
		how = fmt.Sprintf("had not returned after %v", Bound)
	}
	_, verb, ok := page.Last()
	if !ok {
		verb = "no verb"
	}
	why = fmt.Sprintf("a process that tried it out %s in %s", how, verb)
	if said := wrote.line(); said != "" {
		why += ": it wrote " + said
	}
	return nil, why, nil
}

// maxReply bounds the reply of a trial.
const maxReply = 1 << 20

// head keeps the first maxHead bytes that a process writes. The report of a crash by Go's runtime is
// long, and the library's own message stands before it.
type head struct {
	mu   sync.Mutex
	text []byte
}

const maxHead = 512

func (h *head) Write(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.text = append(h.text, p[:min(len(p), maxHead-len(h.text))]...)
	return len(p), nil
}

// line returns the first line that is not blank, quoted, because a library's message reaches a terminal.
func (h *head) line() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	for l := range strings.Lines(string(h.text)) {
		if l = strings.TrimSpace(l); l != "" {
			return fmt.Sprintf("%q", l)
		}
	}
	return ""
}
