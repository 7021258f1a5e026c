package trial

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/ibv"
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
	Calls      ibv.Calls             // is told of every call of a verb; may be nil
	Excluded   map[string]string     // devices that are not used, with the reasons; "" is libibverbs itself
	Logger     *slog.Logger
}

// Guard runs trials and keeps their results as long as the instance lives. It tries a device once for each use. A
// nil guard allows every device.
//
// Lock order: trialMu, then mu.
type Guard struct {
	opts Options

	trialMu sync.Mutex // held during a trial, so that one runs at a time

	mu             sync.Mutex
	resultByDevice map[string]result // "" is the library itself
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
	g := &Guard{opts: o, resultByDevice: make(map[string]result)}
	for device, why := range o.Excluded {
		g.resultByDevice[device] = result{err: newCrashedError(device, why)}
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
			r.QueuePairs = append(r.QueuePairs, q)
			r.Completions = true
		}
	}
	return g.pass(r)
}

// pass returns the result of an earlier trial that covers the request, or that of a new one.
func (g *Guard) pass(r Request) error {
	g.trialMu.Lock()
	defer g.trialMu.Unlock()

	g.mu.Lock()
	v, known := g.resultByDevice[r.Device]
	g.mu.Unlock()
	if known && v.covers(r) || g.opts.Command.Path == "" {
		return v.err
	}

	v = result{flows: r.Flows}
	reply, why, err := g.try(r)
	if why == "" {
		why = refusalIn(reply)
	}
	switch {
	case err != nil: // nothing is known against the device: use it
		g.opts.Logger.Warn("an RDMA library is used without a trial", "device", r.Device, "err", err)
	case why != "":
		v.err = newCrashedError(r.Device, why)
		g.opts.Logger.Warn("an RDMA library fails its trial", "device", r.Device, "reason", why)
	}

	g.mu.Lock()
	defer g.mu.Unlock()
	g.resultByDevice[r.Device] = v
	return v.err
}

// refusalIn returns the reason of a trial that ended by itself and refused the device, or "". The words are the
// library's and reach a terminal, so they are quoted.
func refusalIn(text []byte) string {
	var reply Reply
	if len(text) == 0 || json.Unmarshal(text, &reply) != nil || reply.Refused == "" {
		return ""
	}
	return "a process that tried it out refused it: " + strconv.Quote(reply.Refused)
}

// Probe runs a process that probes the library or a device. r.Probe is the first of the features that the probe reports.
// If the process crashes or hangs, or cannot be started, the results of all features are inconclusive. No result is kept.
func (g *Guard) Probe(r Request, features []string) (reply Reply) {
	text, why, err := g.try(r)
	fix := ""
	switch {
	case err != nil:
	case why != "":
		err = errors.New(why)
		fix = FixCrash
	default:
		err = json.Unmarshal(text, &reply)
		if err == nil {
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

func newCrashedError(device, why string) error {
	return &crashedError{
		UnsupportedError: probe.UnsupportedError{
			Feature: "calling its verbs",
			Object:  orLibrary(device),
			Reason:  why,
			Fix:     FixCrash,
		},
		device: device,
	}
}

// FixCrash is the next step for a device that is not used.
const FixCrash = "install another release of rdma-core, or of the device's own libraries, and start the instance again"

// orLibrary returns the device's name, or the library's if the device is "".
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
	for _, v := range g.resultByDevice {
		var c *crashedError
		if !errors.As(v.err, &c) {
			continue
		}
		out = append(out, dataplane.Condition{
			Code:     dataplane.CodeRDMACrash,
			Severity: dataplane.High,
			Object:   c.Object,
			Text:     c.Object + " is left alone: " + c.Reason,
			Fix:      c.Fix,
		})
	}
	return out
}
