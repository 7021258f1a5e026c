package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/flowtally/flowtally/cmd/internal/eventlog"
	"github.com/flowtally/flowtally/cmd/internal/format"
	"github.com/flowtally/flowtally/cmd/internal/reload"
	"github.com/flowtally/flowtally/cmd/internal/view"
	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/plugin"
	"github.com/flowtally/flowtally/probe"
)

// firstCycle is how long a start may take until its first values.
const firstCycle = 10 * time.Second

// mostLogged is the most flows to log one by one at the start.
const mostLogged = 100

// running is a started instance.
type running struct {
	env        *Env
	svc        dataplane.Service
	instance   string
	configured int // flows of the configuration
	strict     bool
	reload     *reload.Loop
}

// serve logs the instance's events and serves its control socket, if any, until the context ends. If the instance ends
// by itself, serve returns an error.
func (r *running) serve(control *plugin.Control) error {
	ctx, cancel := context.WithCancel(r.env.Context)
	defer cancel()

	events, err := r.svc.Events(ctx)
	if err != nil {
		return fmt.Errorf("following the events of instance %s: %w", r.instance, err)
	}
	served := make(chan error, 1)
	if control != nil {
		go func() { served <- control.Serve(ctx, r.svc) }()
	}

	if err := r.announce(); err != nil {
		if r.env.Context.Err() != nil {
			return fmt.Errorf("starting instance %s: %w before its first values", r.instance, errStopped)
		}
		return err
	}

	// Our caller closes the instance when we return, so wait for a reload under way. The second defer runs first, and makes
	// the reload end.
	var reloading sync.WaitGroup
	defer reloading.Wait()
	defer cancel()
	if r.reload != nil {
		reloading.Go(func() { r.reload.Run(ctx) })
	}
	return r.follow(ctx, events, served)
}

// follow logs events until the context or the instance ends. served receives the error that ended the control socket.
func (r *running) follow(ctx context.Context, events <-chan dataplane.Event, served <-chan error) error {
	log := &eventlog.Log{Logger: r.env.Logger}
	defer log.Flush()
	for {
		select {
		case <-log.Due():
			log.Flush()

		case <-ctx.Done():
			r.env.Logger.Info("stopping", "instance", r.instance)
			return notifySystemd("STOPPING=1")

		case err := <-served:
			if ctx.Err() == nil {
				return fmt.Errorf("instance %s: the control socket ended: %w", r.instance, errors.Join(err, dataplane.ErrClosed))
			}

		case e, ok := <-events:
			switch {
			case ok:
				log.Add(e)
			case ctx.Err() == nil:
				return fmt.Errorf("instance %s ended by itself: %w", r.instance, dataplane.ErrClosed)
			default:
				events = nil // both have ended: the next turn takes the case of ctx
			}
		}
	}
}

// announce logs what is counted, waits for the first values, and tells the service manager that the instance is ready.
func (r *running) announce() error {
	ctx, log := r.env.Context, r.env.Logger
	info, err := r.svc.Info(ctx)
	if err != nil {
		return fmt.Errorf("reading the identity of instance %s: %w", r.instance, err)
	}

	flows, level := r.configured, slog.LevelInfo
	if flows > mostLogged {
		level = slog.LevelDebug // flows list shows them
	}
	// Listing a large set of flows takes a tenth of the time of its start, and formatting them much more. Skip it unless
	// somebody sees the result.
	logged := log.Enabled(ctx, level)
	var placements []dataplane.Placement
	if r.strict || logged {
		if placements, err = r.svc.Placements(ctx); err != nil {
			return fmt.Errorf("listing the flows of instance %s: %w", r.instance, err)
		}
		flows = len(placements)
	}
	pairs, err := r.svc.QueuePairs().List(ctx)
	if err != nil && !errors.Is(err, probe.ErrNotSupported) { // an older plugin has no queue pairs
		return fmt.Errorf("listing the queue pairs of instance %s: %w", r.instance, err)
	}

	log.Info("counting",
		"instance", info.Instance,
		"flows", flows,
		"queue_pairs", len(pairs),
		"mirror", info.Mirror,
		"pid", info.PID,
		"version", info.Version,
	)
	if flows == 0 && len(pairs) == 0 {
		log.Warn("no flow yet: nothing is counted", "add", "flowtally flows add NAME MATCH")
	}
	r.logPlacements(placements, level, logged)
	for _, q := range pairs {
		log.Info("queue pair",
			"name", q.Name,
			"device", q.Device,
			"state", q.State,
			"source", view.Source(q.Source),
			"address", q.Local.String(),
		)
	}

	if err := waitFirstCycle(ctx, info.Mirror, firstCycle); err != nil {
		return err
	}
	if r.strict {
		if err := r.degraded(placements); err != nil {
			return err
		}
	}

	if flows > mostLogged {
		time.AfterFunc(time.Second, freeMemory) // later, when placements is garbage
	}
	counted := format.Plural(uint64(flows), "flow", "flows")
	if len(pairs) > 0 {
		counted += " and " + format.Plural(uint64(len(pairs)), "queue pair", "queue pairs")
	}
	return notifySystemd(fmt.Sprintf("READY=1\nSTATUS=counting %s in %s", counted, info.Mirror))
}

// logPlacements logs the reasons shared by all flows. If each is set, it also logs for every flow where it is counted and
// why not elsewhere, without repeating the shared reasons. That the host has no RDMA is logged once at debug, when the
// backend is opened.
func (r *running) logPlacements(placements []dataplane.Placement, level slog.Level, each bool) {
	log := r.env.Logger
	shared := view.SharedRejections(view.Rejections(placements))
	for _, rejected := range shared {
		if rejected.Reason == dataplane.NoRDMADevice {
			continue
		}
		log.Info("none by "+rejected.Backend, "reason", rejected.Reason)
	}
	if !each {
		return
	}

	for _, p := range placements {
		attrs := []any{"flow", p.Flow.Name, "match", p.Flow.Match.String(), "source", view.Source(p.Source)}
		for _, rejected := range p.Rejected {
			if !slices.Contains(shared, rejected) && rejected.Reason != dataplane.NoRDMADevice {
				attrs = append(attrs, "not_"+rejected.Backend, rejected.Reason)
			}
		}
		log.Log(r.env.Context, level, "placed", attrs...)
	}
}

// waitFirstCycle waits until the writer of the mirror has completed a poll cycle.
func waitFirstCycle(ctx context.Context, path string, timeout time.Duration) error {
	m, err := openMirror(readerFlag{instanceFlag: instanceFlag{Mirror: path}})
	if err != nil {
		return err
	}
	defer m.close()

	deadline := time.NewTimer(timeout)
	defer deadline.Stop()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for m.reader.Status().Cycle == 0 {
		select {
		case <-ctx.Done():
			return nil
		case <-deadline.C:
			return withHint(fmt.Errorf("%s: no poll cycle within %s", path, timeout),
				"look for a stuck process (state D) with ps, and for the kernel's reason with dmesg; then AGAIN")
		case <-tick.C:
		}
	}
	return nil
}

// degraded prints each flow that is not counted and each condition of high severity. If there is any, it returns the
// error for exit code 3.
func (r *running) degraded(placements []dataplane.Placement) error {
	conditions, err := r.svc.Conditions(r.env.Context)
	if err != nil {
		return fmt.Errorf("reading the conditions of instance %s: %w", r.instance, err)
	}

	found := false
	for _, p := range placements {
		if p.Source.Backend == "" {
			found = true
			fmt.Fprintf(r.env.Stderr, "flowtally: flow %s is not counted\n", p.Flow.Name)
		}
	}
	for _, c := range r.env.completed(conditions) {
		if c.Severity == dataplane.High {
			found = true
			fmt.Fprintf(r.env.Stderr, "flowtally: %s: %s (%s)\n  try: %s\n",
				format.Printable(c.Object), format.PrintableLines(c.Text), c.Code, format.PrintableLines(c.Fix))
		}
	}
	if found {
		return exitError(exitDegraded)
	}
	return nil
}
