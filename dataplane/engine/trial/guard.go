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

// Command is the command line of a trial. The main function of the program must call engine.TrialMain first. With
// the zero value there are no trials, and devices are used at once.
type Command struct {
	Path string
	Args []string // from the program's name on, as os.Args
}

// Bound is the time that a trial may spend in one verb, or between two. A trial that takes longer hangs.
const Bound = 5 * time.Second

// Longest is the time that a whole trial may take. On a busy host each verb may be late, and still return.
const Longest = 4 * Bound

// Options are the options of a guard.
type Options struct {
	Command    Command
	RDMA       dataplane.RDMAConfig  // paths of the libraries
	QueuePairs []dataplane.QueuePair // of the configuration
	Calls      ibv.Calls             // observes every call of a verb (optional)
	Excluded   map[string]string     // reason by device that must not be used; "" is libibverbs itself
	Logger     *slog.Logger
}

// Guard runs trials and remembers their results as long as the instance runs. It tries a device once for its queue
// pairs, and once for flows. A nil guard allows every device.
//
// Lock order: trialMu, then mu.
type Guard struct {
	opts Options

	trialMu sync.Mutex // held during a trial: only one may run at a time

	mu             sync.Mutex
	resultByDevice map[string]result // "" is the library itself
}

// result is the result of a trial.
type result struct {
	err   error // why the device is not used, or nil
	flows bool  // the trial called the verbs for counting flows too
}

// covers reports whether the result answers a request, too. A failed trial answers all: we do not use the device for
// anything.
func (v result) covers(r Request) bool { return v.err != nil || v.flows || !r.Flows }

// New returns a guard that refuses the devices in o.Excluded.
func New(o Options) *Guard {
	g := &Guard{opts: o, resultByDevice: make(map[string]result)}
	for device, why := range o.Excluded {
		g.resultByDevice[device] = result{err: newCrashedError(device, why)}
	}
	return g
}

// Calls returns Options.Calls, for those who open a device after its trial.
func (g *Guard) Calls() ibv.Calls {
	if g == nil {
		return nil
	}
	return g.opts.Calls
}

// Library tries loading libibverbs and listing the devices. The error says why neither must be done.
func (g *Guard) Library() error {
	if g == nil {
		return nil
	}
	return g.pass(Request{})
}

// Device tries a device for the use described by r, and for the queue pairs of the configuration. The error says why
// the device must not be used.
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

// pass returns the result of an earlier trial if it covers the request, and runs a new trial otherwise.
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
	case err != nil: // the trial did not run, so nothing is known against the device: use it
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

// refusalIn returns the reason if a trial ended normally and refused the device, or "". The text may come from a
// broken library and may reach a terminal, so we quote it.
func refusalIn(text []byte) string {
	var reply Reply
	if len(text) == 0 || json.Unmarshal(text, &reply) != nil || reply.Refused == "" {
		return ""
	}
	return "a process that tried it out refused it: " + strconv.Quote(reply.Refused)
}

// Probe runs a process to probe the library or a device. r.Probe must be the first of features, which are those reported
// by the probe. If the process crashes, hangs or does not start, all features are inconclusive. Probes do not affect
// the use of the device, so no result is remembered.
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

// crashedError is the reason against using a device, or the library: its trial crashed or hung, or it is excluded.
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

// FixCrash is the next step after a crashed or hanging trial.
const FixCrash = "install another release of rdma-core, or of the device's own libraries, and start the instance again"

// orLibrary returns device, or the name of the library if device is "".
func orLibrary(device string) string {
	if device == "" {
		return "libibverbs"
	}
	return device
}

// Conditions lists the devices, or the library, that we do not use because of a crash.
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
