package trial

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/ibv"
	"github.com/flowtally/flowtally/internal/verbpage"
	"github.com/flowtally/flowtally/probe"
)

// Command is the command line of a trial. The program's main function must call engine.TrialMain
// first. With the zero value devices are used without a trial.
type Command struct {
	Path string
	Args []string // from the program's name on, as os.Args
}

// Bound is how long a trial may take.
const Bound = 5 * time.Second

// Options are the options of a guard.
type Options struct {
	Command    Command
	RDMA       dataplane.RDMAConfig  // the libraries
	QueuePairs []dataplane.QueuePair // of the configuration
	Calls      ibv.Calls             // is told of every call of a verb; nil: is not
	Excluded   map[string]string     // devices that are not used, with the reasons; "" is libibverbs itself
	Logger     *slog.Logger
}

// Guard runs trials and keeps their results as long as the instance lives. It tries a device once for each use. A
// nil guard allows every device.
type Guard struct {
	opts Options

	trying sync.Mutex // held during a trial: one runs at a time

	mu    sync.Mutex
	tried map[string]result // by device; "" is the library itself
}

// result is the result of a trial.
type result struct {
	err   error // why the device is not used; nil: the trial has ended well
	flows bool  // the trial included the verbs that counting flows calls
}

// covers reports whether the result holds for a request. A device that failed a trial is not used at all.
func (v result) covers(r Request) bool { return v.err != nil || v.flows || !r.Flows }

// New returns a guard that refuses the devices in o.Excluded.
func New(o Options) *Guard {
	g := &Guard{opts: o, tried: make(map[string]result)}
	for device, why := range o.Excluded {
		g.tried[device] = result{err: crashed(device, why)}
	}
	return g
}

// Calls returns the receiver of every call of a verb, or nil.
func (g *Guard) Calls() ibv.Calls {
	if g == nil {
		return nil
	}
	return g.opts.Calls
}

// Library tries the library and its list of devices, and returns why they cannot be used, or nil.
func (g *Guard) Library() error {
	if g == nil {
		return nil
	}
	return g.pass(Request{})
}

// Device tries a device, as r says and for the queue pairs of the configuration, and returns why it cannot be
// used, or nil.
func (g *Guard) Device(r Request) error {
	if g == nil {
		return nil
	}
	if err := g.Library(); err != nil {
		return err
	}
	for _, q := range g.opts.QueuePairs {
		if q.Device == r.Device {
			r.QueuePairs, r.Completions = append(r.QueuePairs, q), true
		}
	}
	return g.pass(r)
}

func (g *Guard) pass(r Request) error {
	g.trying.Lock()
	defer g.trying.Unlock()
	g.mu.Lock()
	v, known := g.tried[r.Device]
	g.mu.Unlock()
	if known && v.covers(r) || g.opts.Command.Path == "" {
		return v.err
	}
	v = result{flows: r.Flows}
	text, why, err := g.try(r)
	if why == "" && len(text) > 0 {
		var reply Reply
		if json.Unmarshal(text, &reply) == nil && reply.Refused != "" {
			why = "a process that tried it out refused it: " + strconv.Quote(reply.Refused) // of the library, as its words reach a terminal
		}
	}
	switch {
	case err != nil: // the device is used without a trial
		g.opts.Logger.Warn("an RDMA library is used without a trial", "device", r.Device, "err", err)
	case why != "":
		v.err = crashed(r.Device, why)
		g.opts.Logger.Warn("an RDMA library fails its trial", "device", r.Device, "reason", why)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.tried[r.Device] = v
	return v.err
}

// Probe runs a process that probes the library or a device. r.Probe is the first of the features that the probe reports.
// If the process crashes or hangs, or cannot be started, the results of all features are inconclusive. No result is kept.
func (g *Guard) Probe(r Request, features []string) (reply Reply) {
	fix := ""
	text, why, err := g.try(r)
	switch {
	case err != nil:
	case why != "":
		err, fix = errors.New(why), FixCrash
	default:
		if err = json.Unmarshal(text, &reply); err == nil {
			return reply
		}
		err = fmt.Errorf("decoding the reply of a process that probed %s: %w", orLibrary(r.Device), err)
	}
	reply = Reply{}
	for _, f := range features {
		result := probe.Ask(f, orLibrary(r.Device), err)
		result.Fix = fix
		reply.Results = append(reply.Results, result)
	}
	return reply
}

// crashedError is why a device, or the library, is not used: its trial crashed or hung, or it is excluded.
type crashedError struct {
	probe.UnsupportedError
	device string
}

// Unwrap lets errors.As find the UnsupportedError.
func (e *crashedError) Unwrap() error { return &e.UnsupportedError }

func crashed(device, why string) error {
	return &crashedError{probe.UnsupportedError{
		Feature: "calling its verbs", Object: orLibrary(device), Reason: why, Fix: FixCrash,
	}, device}
}

// FixCrash is the next step for a device that is not used.
const FixCrash = "install another release of rdma-core, or of the device's own libraries, and start the instance again"

func orLibrary(device string) string {
	if device == "" {
		return "libibverbs"
	}
	return device
}

// Conditions lists the devices that are not used, or the library.
func (g *Guard) Conditions() (out []dataplane.Condition) {
	if g == nil {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, v := range g.tried {
		var c *crashedError
		if !errors.As(v.err, &c) {
			continue
		}
		out = append(out, dataplane.Condition{
			Code: dataplane.CodeRDMACrash, Severity: dataplane.High, Object: c.Object,
			Text: c.Object + " is left alone: " + c.Reason,
			Fix:  c.Fix,
		})
	}
	return out
}

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

// Request is the work of a trial. Without a device it loads the library and lists the devices.
type Request struct {
	RDMA        dataplane.RDMAConfig
	Device      string
	Flows       bool // the trial counts flows on Port
	Port        uint8
	Shared      bool // ports with interfaces share the device
	Completions bool // the trial makes the objects that count completions
	QueuePairs  []dataplane.QueuePair
	Probe       string   // not empty: a feature of the probe that the process runs in place of a trial
	Interfaces  []string // of a probe that lists the devices
}

// Reply is the reply of a process to a request with Probe: the devices, if the request names none, or the results. The
// reply to another request is empty, or has the reason why the device must not be used.
type Reply struct {
	Devices []Device
	Results []probe.Result
	Refused string
}

// Device is a device in a list, as rdma.DescribeDevice describes it.
type Device struct {
	Name   string
	Object string // its name in results
	Counts bool   // it belongs to one of the interfaces of the request
}
