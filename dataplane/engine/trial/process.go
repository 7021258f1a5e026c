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
// well, or "". The error is why the process could not be started.
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
	defer out.Close() // which also ends readReply

	var wrote head
	cmd := g.command(request, &wrote, file, in)
	err = cmd.Start()
	in.Close() // the process has its own
	if err != nil {
		return nil, "", fmt.Errorf("starting a trial: %w", err)
	}
	replied := readReply(out)

	how := waitFor(cmd, page)
	if how == "" {
		// The reply is complete, but a process that the library started may still hold the pipe open.
		_ = out.SetReadDeadline(time.Now().Add(time.Second))
		return <-replied, "", nil
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

// command returns the process of a trial, not started. It gets the request from stdin, the page of its verbs as
// descriptor 3 and the pipe of its reply as descriptor 4; stdout and stderr are the library's to write to.
func (g *Guard) command(request []byte, wrote *head, page, reply *os.File) *exec.Cmd {
	return &exec.Cmd{
		Path:        g.opts.Command.Path,
		Args:        g.opts.Command.Args,
		Stdin:       bytes.NewReader(request),
		Stdout:      wrote,
		Stderr:      wrote,
		ExtraFiles:  []*os.File{page, reply},
		WaitDelay:   time.Second,
		SysProcAttr: &syscall.SysProcAttr{Setpgid: true}, // a signal to the group reaches the library's own processes, too
	}
}

// maxReply bounds the reply of a trial.
const maxReply = 1 << 20

// readReply reads the reply until its end, or until out is closed. Half a reply cannot be decoded, so the error is
// not needed.
func readReply(out *os.File) <-chan []byte {
	replied := make(chan []byte, 1)
	go func() {
		b, _ := io.ReadAll(io.LimitReader(out, maxReply))
		replied <- b
	}()
	return replied
}

// waitFor waits for the end of a trial, and kills it after Bound. It returns how the trial failed, or "".
func waitFor(cmd *exec.Cmd, page *verbpage.Page) (how string) {
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()

	select {
	case err := <-ended:
		if err != nil && !errors.Is(err, exec.ErrWaitDelay) {
			return fmt.Sprintf("ended (%v)", err)
		}
		if _, _, inside := page.Last(); inside { // the library has called exit
			return "ended (exit status 0)"
		}
		return ""
	case <-time.After(Bound):
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		select { // no longer than this: the kernel may hold the process in a call of the device
		case <-ended:
		case <-time.After(time.Second):
		}
		return fmt.Sprintf("had not returned after %v", Bound)
	}
}

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
