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

// try runs a process for a request and returns its reply. If the process crashes or hangs, why says how and in which
// verb. The error is non-nil only if the process could not be started.
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
	defer out.Close() // this also ends readReply

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
		// The reply is complete, but a process started by the library may still have the pipe open.
		_ = out.SetReadDeadline(time.Now().Add(time.Second))
		return <-replied, "", nil
	}

	where := "outside of a verb"
	if _, verb, ok := page.Last(); ok {
		where = "in " + verb
	}
	why = fmt.Sprintf("a process that tried it out %s %s", how, where)
	if said := wrote.line(); said != "" {
		why += ": it wrote " + said
	}
	return nil, why, nil
}

// command describes the process of a trial. It reads the request from stdin, names its verbs in the page of
// descriptor 3, and writes its reply to descriptor 4. Stdout and stderr are left to the library, which may write to
// either.
func (g *Guard) command(request []byte, wrote *head, page, reply *os.File) *exec.Cmd {
	return &exec.Cmd{
		Path:        g.opts.Command.Path,
		Args:        g.opts.Command.Args,
		Stdin:       bytes.NewReader(request),
		Stdout:      wrote,
		Stderr:      wrote,
		ExtraFiles:  []*os.File{page, reply},
		WaitDelay:   time.Second,
		SysProcAttr: &syscall.SysProcAttr{Setpgid: true}, // so that we can also kill processes started by the library
	}
}

// maxReply limits the reply of a trial: a broken library may write to the pipe without end.
const maxReply = 1 << 20

// readReply reads the reply until its end, or until out is closed. It drops the error: half a reply fails to decode
// anyway.
func readReply(out *os.File) <-chan []byte {
	replied := make(chan []byte, 1)
	go func() {
		b, _ := io.ReadAll(io.LimitReader(out, maxReply))
		replied <- b
	}()
	return replied
}

// waitFor waits for a trial to end, and kills one that hangs. It returns how the trial failed, or "".
func waitFor(cmd *exec.Cmd, page *verbpage.Page) (how string) {
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()

	how, hangs := watch(ended, page)
	if !hangs {
		return how
	}
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	select { // do not wait longer: the process may be stuck in the kernel, where no signal reaches it
	case <-ended:
	case <-time.After(time.Second):
	}
	return how
}

// watch waits until ended has the result of a trial, or until the trial hangs. It returns how the trial failed, or "".
//
// A trial that goes on from verb to verb does not hang, however late it is: a busy host must not cost the instance its
// device, because results last as long as the instance.
func watch(ended <-chan error, page *verbpage.Page) (how string, hangs bool) {
	const look = Bound / 50
	ticker := time.NewTicker(look)
	defer ticker.Stop()

	oldest := page.Oldest()
	still := time.Duration(0) // since the oldest verb changed
	for passed := time.Duration(0); ; passed += look {
		switch {
		case still >= Bound:
			return fmt.Sprintf("had not returned after %v", Bound), true
		case passed >= Longest:
			return fmt.Sprintf("was still at work after %v", Longest), true
		}

		select {
		case err := <-ended:
			return failure(err, page), false
		case <-ticker.C:
		}
		select {
		case err := <-ended: // the process is reaped, and its number may be another's
			return failure(err, page), false
		default:
		}

		if now := page.Oldest(); now != oldest {
			oldest = now
			still = 0
		} else {
			still += look
		}
	}
}

// failure returns how a trial that has ended failed, or "".
func failure(err error, page *verbpage.Page) string {
	if err != nil && !errors.Is(err, exec.ErrWaitDelay) {
		return fmt.Sprintf("ended (%v)", err)
	}
	if _, _, inside := page.Last(); inside { // the library has called exit within a verb
		return "ended (exit status 0)"
	}
	return ""
}

// head stores the first maxHead bytes written by a process. That is enough: after a crash Go's runtime writes a long
// report, but the library's own message comes first.
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

// line returns the first line that is not blank. It is quoted, because it may reach a terminal.
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
