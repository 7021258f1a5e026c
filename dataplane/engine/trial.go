package engine

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/probe"
	"github.com/flowtally/flowtally/ibv"
	"github.com/flowtally/flowtally/internal/verbpage"
)

// TrialCommand starts a process that tries an RDMA device out before this one uses it: a library
// that crashes or hangs there costs the device, and not the counting. The program must be one whose
// main function calls [TrialMain] first, or the trial is whatever the program does instead. The zero
// value is none: devices are used untried.
type TrialCommand struct {
	Path string
	Args []string // from the program's name on, as os.Args
}

// SelfTrial is this very program, for one whose main function calls TrialMain first.
func SelfTrial() TrialCommand {
	return TrialCommand{Path: "/proc/self/exe", Args: []string{os.Args[0], trialWord}}
}

// trialWord is the argument by which a process knows that it is a trial.
const trialWord = "rdma-trial"

// trialBound is how long a trial may take.
const trialBound = 5 * time.Second

// guard stands between the instance and libraries that may end its process. It tries each device out
// in a process of its own, once for each use, and keeps the result as long as the instance lives. A nil
// guard allows every device.
type guard struct {
	cfg     dataplane.Config
	command TrialCommand
	calls   ibv.Calls
	log     *slog.Logger
	bound   time.Duration // trialBound; tests are less patient

	trying sync.Mutex // held over a trial: there is one at a time

	mu    sync.Mutex
	tried map[string]trialResult // by device; "" is the library itself
}

// trialResult is the result of a trial.
type trialResult struct {
	err   error // why the device is left alone; nil: the trial has ended well
	flows bool  // the trial included what counting flows calls
}

// covers says whether the result holds for a request. A device that failed is left alone altogether.
func (v trialResult) covers(r trialRequest) bool { return v.err != nil || v.flows || !r.Flows }

// newGuard makes a guard that refuses the devices which o excludes.
func newGuard(cfg dataplane.Config, o Options, log *slog.Logger) *guard {
	cfg.Flows = nil // kept as long as the guard, which does not read them
	g := &guard{cfg: cfg, command: o.Trial, calls: o.Calls, log: log, bound: trialBound, tried: make(map[string]trialResult)}
	for device, why := range o.Excluded {
		g.tried[device] = trialResult{err: crashed(device, why)}
	}
	return g
}

// named returns the Calls by which each verb is named before it is called; nil: verbs are not named.
func (g *guard) named() ibv.Calls {
	if g == nil {
		return nil
	}
	return g.calls
}

// library is nil unless the library cannot be loaded, or asked for its devices, without harm.
func (g *guard) library() error {
	if g == nil {
		return nil
	}
	return g.pass(trialRequest{})
}

// device is nil unless a device cannot be used without harm, as r says and for the queue pairs of the
// configuration.
func (g *guard) device(r trialRequest) error {
	if g == nil {
		return nil
	}
	if err := g.library(); err != nil {
		return err
	}
	for _, q := range g.cfg.QueuePairs {
		if q.Device == r.Device {
			r.QueuePairs, r.Completions = append(r.QueuePairs, q), true
		}
	}
	return g.pass(r)
}

func (g *guard) pass(r trialRequest) error {
	g.trying.Lock()
	defer g.trying.Unlock()
	g.mu.Lock()
	v, known := g.tried[r.Device]
	g.mu.Unlock()
	if known && v.covers(r) || g.command.Path == "" {
		return v.err
	}
	r.RDMA = g.cfg.RDMA
	v = trialResult{flows: r.Flows}
	if why := g.try(r); why != "" {
		v.err = crashed(r.Device, why)
		g.log.Warn("an RDMA library fails its trial", "device", r.Device, "reason", why)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.tried[r.Device] = v
	return v.err
}

// crashedError is why a device, or the library, is left alone.
type crashedError struct {
	probe.UnsupportedError
	device string
}

// Unwrap lets errors.As find the UnsupportedError.
func (e *crashedError) Unwrap() error { return &e.UnsupportedError }

func crashed(device, why string) error {
	return &crashedError{probe.UnsupportedError{
		Feature: "calling its verbs", Object: orLibrary(device), Reason: why, Fix: fixCrash,
	}, device}
}

const fixCrash = "install another release of rdma-core, or of the device's own libraries, and start the instance again"

func orLibrary(device string) string {
	if device == "" {
		return "libibverbs"
	}
	return device
}

// conditions lists the devices, or the library, that are left alone.
func (g *guard) conditions() (out []dataplane.Condition) {
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

// try runs a trial and returns why it did not end well. The reason is empty also for a trial that could
// not be started: the device is used untried.
func (g *guard) try(r trialRequest) (why string) {
	page, file, err := verbpage.New()
	if err != nil {
		g.log.Warn("an RDMA library is used without a trial", "device", r.Device, "err", err)
		return ""
	}
	defer page.Close()
	defer file.Close()
	request, err := json.Marshal(r)
	var wrote head
	cmd := &exec.Cmd{
		Path: g.command.Path, Args: g.command.Args, Stdin: bytes.NewReader(request), Stdout: &wrote, Stderr: &wrote,
		ExtraFiles: []*os.File{file}, WaitDelay: time.Second,
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // the kill also ends processes that the trial has started
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		g.log.Warn("an RDMA library is used without a trial", "device", r.Device, "err", err)
		return ""
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	how := ""
	select {
	case err = <-done:
		if err == nil || errors.Is(err, exec.ErrWaitDelay) {
			if _, _, inside := page.Last(); !inside {
				return ""
			}
			err = errors.New("exit status 0") // of a library that calls exit
		}
		how = fmt.Sprintf("ended (%v)", err)
	case <-time.After(g.bound):
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		select { // a process that the kernel holds in a call of the device is not waited for
		case <-done:
		case <-time.After(time.Second):
		}
		how = fmt.Sprintf("had not returned after %v", g.bound)
	}
	_, verb, ok := page.Last()
	if !ok {
		verb = "no verb"
	}
	why = fmt.Sprintf("a process that tried it out %s in %s", how, verb)
	if said := wrote.line(); said != "" {
		why += ": it wrote " + said
	}
	return why
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

// trialRequest is what a trial is to do. Without a device it loads the library and lists the devices.
type trialRequest struct {
	RDMA        dataplane.RDMAConfig
	Device      string
	Flows       bool // as counting flows on Port uses it
	Port        uint8
	Shared      bool // nicInfo.shared
	Completions bool // as counting completions does
	QueuePairs  []dataplane.QueuePair
}

// TrialMain runs a trial, if that is what the process was started for, and returns its exit code. A
// program that hands SelfTrial to an instance calls it before anything else:
//
//	if code, is := engine.TrialMain(); is {
//		os.Exit(code)
//	}
func TrialMain() (code int, is bool) {
	if !slices.Equal(os.Args[1:], []string{trialWord}) {
		return 0, false
	}
	return runTrial(os.Stdin, os.NewFile(3, "verbs")), true
}
