package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"sync"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/engine/catalogue"
	"github.com/flowtally/flowtally/dataplane/engine/control"
	"github.com/flowtally/flowtally/dataplane/engine/event"
	"github.com/flowtally/flowtally/dataplane/engine/poll"
	"github.com/flowtally/flowtally/dataplane/engine/queuepair"
	"github.com/flowtally/flowtally/dataplane/engine/trial"
	"github.com/flowtally/flowtally/dataplane/engine/words"
	"github.com/flowtally/flowtally/dataplane/engine/xdp"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/hosted"
	"github.com/flowtally/flowtally/internal/inject"
	"github.com/flowtally/flowtally/internal/tick"
	"github.com/flowtally/flowtally/shm"
)

// Options are the settings of an Engine beside its configuration.
type Options struct {
	Logger *slog.Logger // nil: log records are discarded
	// Trial starts a process that tests RDMA devices before this process uses them. It is SelfTrial if the main function
	// of this program calls TrialMain. The zero value means SelfTrial in a plugin, and no test elsewhere.
	Trial TrialCommand
	// Switchdev names an RDMA device that this instance may use although its NIC is in switchdev mode. Only flowtally
	// selftest sets it, to find out what the device counts there: a configuration has no such key, and a plugin never
	// sets it.
	Switchdev string
}

// Engine counts flows and publishes them. It satisfies dataplane.Service.
type Engine struct {
	cfg       dataplane.Config
	log       *slog.Logger
	backends  []backend.Backend
	catalogue *catalogue.Catalogue // assemble makes the parts from here to plan
	placement *placement
	arranger  *arranger
	mover     *mover
	auditor   *auditor
	health    *health
	poller    *poll.Poller
	plan      *poll.Plan
	watcher   *watcher // made by start
	writer    *shm.Writer
	pairs     *queuepair.Set
	words.Service
	guard      *trial.Guard
	unconfined []dataplane.Condition // that the process is not kept to its files although it should be
	events     event.Broadcaster
	info       dataplane.Info

	stop    context.CancelFunc // ends the goroutines
	stopped sync.WaitGroup

	life    context.Context // of control calls; ends when Close is called
	quit    context.CancelFunc
	closing sync.Once
	shut    chan struct{} // closed when Close has the instance to itself
	ended   chan error    // the result of Close
	bound   time.Duration // closeBound; tests are less patient

	ctl     control.Lock // serialises control calls; guards the fields below and the state of catalogue, placement, arranger, mover and auditor
	flows   map[string]*flowState
	refused *refusals
	given   []dataplane.Interface // to the backends
	adding  []*flowState          // flows that have entries and are not in flows yet
	order   uint32                // of the next flow
	place   uint64                // flowState.place of the next flow
	pending *pending

	inForce inForce
}

var _ dataplane.Service = (*Engine)(nil)

// New starts an instance. It creates the mirror or takes an existing one over, installs the configured flows, and removes the counters
// of an earlier process that are no longer configured. Then it polls until Close.
//
// ctx limits the start alone. If the start fails, or ctx ends first, New leaves nothing attached or pinned. With xdp.keep_pins it leaves
// the pins that it has found.
func New(ctx context.Context, cfg dataplane.Config, opts Options) (_ *Engine, err error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("configuration: %w: %w", dataplane.ErrInvalid, err)
	}
	if err := CheckHost(cfg); err != nil {
		return nil, err
	}
	if err := enoughDescriptors(cfg); err != nil {
		return nil, err
	}
	e := &Engine{
		cfg: withDefaults(cfg), log: opts.Logger, bound: backend.CloseBound,
		shut: make(chan struct{}), ended: make(chan error, 1),
		flows: make(map[string]*flowState), pending: new(pending),
		inForce: inForce{flows: make(map[string]*shown), refused: make(map[string]*refusal)},
	}
	if e.log == nil {
		e.log = slog.New(slog.DiscardHandler)
	}
	opts.Logger = e.log
	e.given = e.cfg.Interfaces
	e.ctl = control.New(e.commit, inject.ClosedFrom(ctx))
	e.refused = &refusals{log: e.log, flows: make(map[string]*refusal), pending: e.pending}
	host, isHosted := hosted.From(ctx)
	if isHosted && opts.Trial.Path == "" {
		opts.Trial = SelfTrial()
	}
	e.guard = trial.New(trial.Options{
		Command: opts.Trial, RDMA: e.cfg.RDMA, QueuePairs: e.cfg.QueuePairs, Calls: host.Verbs, Excluded: host.Excluded, Logger: e.log,
	})
	e.life, e.quit = context.WithCancel(context.Background())
	// The supervisor of a plugin decides itself what a failed start leaves. It may start the instance again, on the same pins.
	given := inject.From(ctx)
	e.unconfined = unconfined(e.cfg.Instance, host.Unconfined)
	before, known := xdp.Left(e.cfg.XDP.PinDir)
	undoes := known && !isHosted && given == nil
	defer func() {
		if err == nil {
			return
		}
		e.quit()
		inUse := errors.Is(err, dataplane.ErrInUse) // then the mirror and the pins belong to another instance
		err = errors.Join(err, e.pairs.Close(), e.Set.Close(), e.release(true, (*shm.Writer).Discard))
		if undoes && !inUse {
			err = errors.Join(err, undoStart(e.cfg, before))
		}
	}()
	if e.writer, err = catalogue.Create(e.cfg.Mirror, inject.ReserveFrom(ctx), e.log); err != nil {
		return nil, err
	}
	var absent map[string]error // by backend: why it has nothing to count with
	if e.backends = given; given == nil {
		if e.backends, absent, err = openBackends(ctx, e.cfg, host, opts, e.guard); err != nil {
			return nil, err
		}
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	e.assemble(absent, given != nil, inject.TickerFrom(ctx))
	if err := e.catalogue.ServeLive(e.cfg.Mirror, e.backends); err != nil {
		return nil, err
	}
	if err := e.resume(ctx); err != nil {
		return nil, err
	}
	e.info = dataplane.Info{
		Instance: e.cfg.Instance, Mirror: e.cfg.Mirror.Path, Version: version(), PID: os.Getpid(), Started: time.Now(),
	}
	e.start()
	return e, nil
}

// setIdle tells the backends that no counter has changed for a while, or that one has.
func (e *Engine) setIdle(idle bool) {
	for _, b := range e.backends {
		if i, is := b.(backend.Idler); is {
			i.SetIdle(idle)
		}
	}
}

// assemble makes the parts of an instance from its backends and its mirror. absent says why backends have nothing
// to count with; given: the backends are of package inject. ticker is nil, or of that package too.
func (e *Engine) assemble(absent map[string]error, given bool, ticker *tick.Ticker) {
	e.plan = poll.NewPlan(e.cfg.Mirror.HistoryPeriod)
	e.poller = poll.New(poll.Options{Plan: e.plan, Writer: e.writer, Config: e.cfg.Poll, Logger: e.log, Idle: e.setIdle, Ticker: ticker})
	e.catalogue = catalogue.New(catalogue.Options{
		Path: e.cfg.Mirror.Path, Logger: e.log, Writer: e.writer, Plan: e.plan, Limits: [2]int{e.cfg.Mirror.Counters, e.cfg.Mirror.LatencyCounters},
		Entries: e.entries, Remade: func() { e.pairs.WriteAgain(); e.Set.WriteAgain() }, Keep: func() { e.Set.Keep() },
	})
	e.pairs, e.Service = newQueuePairs(e), newWords(e)
	e.mover = &mover{
		ctl:       e.ctl,
		stack:     newStack(e.backends, absent, e.cfg.RDMA.Audit),
		catalogue: e.catalogue,
		plan:      e.plan,
		pending:   e.pending,
		log:       e.log,
		sleep:     time.Sleep,
	}
	e.arranger = &arranger{mover: e.mover, poller: e.poller, flows: e.flows}
	e.placement = &placement{
		choices: &choices{all: e.backends, given: given, absent: absent, standard: e.cfg.Backend, byName: make(map[flow.Backend]*choice)},
		mover:   e.mover, arranger: e.arranger, flows: e.flows, refused: e.refused, audit: e.cfg.RDMA.Audit,
	}
	e.auditor = &auditor{ctl: e.ctl, mover: e.mover, arranger: e.arranger, flows: e.flows}
	e.health = &health{log: e.log, events: &e.events, instance: e.cfg.Instance, raised: make(map[string]dataplane.Condition)}
}

// resume installs the configured flows. They take over the entries and rules of an earlier process, and resume removes what none of
// them has taken over.
func (e *Engine) resume(ctx context.Context) error {
	e.ctl.Lock()
	defer e.ctl.Unlock()
	e.catalogue.Inherit()
	flows := e.cfg.Flows
	e.cfg.Flows = nil // Engine.flows has them from here on
	e.refused.begin(e.cfg.Start == dataplane.StartDegraded)
	if _, err := e.add(ctx, flows, nil); err != nil {
		return err
	}
	e.refused.end(nil)
	if err := ctx.Err(); err != nil { // the last chance: from here on we remove what an earlier process has left
		return err
	}
	if err := errors.Join(startQueuePairs(e.pairs, e.plan), e.Service.Start(e.cfg.Words)); err != nil {
		return err
	}
	if err := e.catalogue.RemoveInherited(e.refused.entries()); err != nil {
		return err
	}
	for _, b := range e.backends {
		if err := b.RemoveStale(ctx); err != nil {
			return fmt.Errorf("removing stale flows from backend %s: %w", b.Name(), err)
		}
	}
	return nil
}

// configure gives the parts the settings that can change while the instance runs. Callers hold ctl.
func (e *Engine) configure(cfg dataplane.Config) {
	e.cfg = cfg
	e.poller.SetPeriods(cfg.Poll.Period, cfg.Poll.IdlePeriod)
	e.pairs.SetPeriod(cfg.Poll.Period)
	e.plan.SetHistoryPeriod(cfg.Mirror.HistoryPeriod)
	if err := e.catalogue.SetLimits(cfg.Mirror); err != nil {
		e.log.Warn("changing the limits of the mirror", "err", err)
	}
}

// start runs the poller and the watcher until Close.
func (e *Engine) start() {
	ctx, stop := context.WithCancel(context.Background())
	e.stop = stop
	e.watcher = &watcher{
		ctl:        e.ctl,
		log:        e.log,
		backends:   e.backends,
		pairs:      e.pairs,
		words:      e.Set,
		guard:      e.guard,
		unconfined: e.unconfined,
		poller:     e.poller,
		flows:      e.flows,
		refused:    e.refused,
		inForce:    &e.inForce,
		retry:      func(ctx context.Context) { retryRefused(ctx, e) },
		noteChange: e.noteChange,
		mover:      e.mover,
		placement:  e.placement,
		auditor:    e.auditor,
		health:     e.health,
		life:       e.life,
		stopped:    &e.stopped,
		asked:      make([]asked, len(e.backends)),
	}
	e.writer.SetState(shm.Run)
	e.stopped.Go(func() { e.poller.Run(ctx) })
	e.stopped.Go(func() { e.watcher.run(ctx) })
}

// Info implements dataplane.Service.
func (e *Engine) Info(context.Context) (dataplane.Info, error) {
	if e.closed() {
		return dataplane.Info{}, dataplane.ErrClosed
	}
	return e.info, nil
}

// Events implements dataplane.Service.
func (e *Engine) Events(ctx context.Context) (<-chan dataplane.Event, error) {
	if e.closed() {
		return nil, dataplane.ErrClosed
	}
	return e.events.Subscribe(ctx), nil
}

// QueuePairs implements dataplane.Service.
func (e *Engine) QueuePairs() dataplane.QueuePairs { return e.pairs }

// Conditions implements dataplane.Service.
func (e *Engine) Conditions(context.Context) ([]dataplane.Condition, error) {
	if e.closed() {
		return nil, dataplane.ErrClosed
	}
	return e.health.list(), nil
}

// ErrUnreturned is the error of Close if a control call did not return, so that the instance still exists. Call Exit.Release to detach
// its programs.
var ErrUnreturned = errors.New("a control call has not returned")

// Close publishes a last cycle, marks the mirror as halted, and stops counting. With xdp.keep_pins the kernel goes on counting. A control
// call under way ends at its next command to a device. If it does not within closeBound, Close returns ErrUnreturned, and the instance
// ends in the background.
func (e *Engine) Close() error {
	e.closing.Do(func() {
		e.quit()
		go func() {
			e.ctl.Lock()
			defer e.ctl.Unlock()
			close(e.shut)
			e.ended <- e.end()
		}()
	})
	bound := time.NewTimer(e.bound)
	defer bound.Stop()
	select {
	case <-e.shut:
	case <-bound.C:
		return fmt.Errorf("closing instance %s: %w for %v: the instance ends when it does, or with the process", e.info.Instance, ErrUnreturned, e.bound)
	}
	err := <-e.ended
	e.ended <- nil // for later calls
	return err
}

// end is the part of Close that runs once. Callers hold ctl.
func (e *Engine) end() error {
	err := errors.Join(e.pairs.Close(), e.Set.Close()) // before the last cycle, which publishes their counts
	e.auditor.alignAtEnd()
	e.watcher.showSources() // declares losses now, because the next process cannot see a hook that was lost and taken back
	e.stop()
	e.stopped.Wait()
	e.commit() // and send what the last look has found
	e.events.Close()
	return errors.Join(err, e.release(e.cfg.XDP.KeepPins, (*shm.Writer).Close))
}

// release closes everything, in this order. First the backends whose rules outlive this process: the lock of the mirror still keeps a
// second instance away from them. Then the mirror, by closeMirror. Hardware is last: its rules end with the process anyway, and a slow
// device must not delay the rest.
func (e *Engine) release(keep bool, closeMirror func(*shm.Writer) error) error {
	var errs []error
	closing := func(overlays bool) {
		for _, b := range e.backends {
			if _, is := b.(backend.HardwareBackend); is != overlays {
				continue
			}
			if err := b.Close(keep); err != nil {
				errs = append(errs, fmt.Errorf("closing backend %s: %w", b.Name(), err))
			}
		}
	}
	closing(false)
	if e.catalogue != nil {
		errs = append(errs, e.catalogue.Close())
	}
	if e.writer != nil {
		if err := closeMirror(e.writer); err != nil {
			errs = append(errs, fmt.Errorf("closing the mirror: %w", err))
		}
	}
	closing(true)
	return errors.Join(errs...)
}

// defaultHistoryPeriod is the time between two records of a counter in the mirror's history.
const defaultHistoryPeriod = time.Second

func withDefaults(cfg dataplane.Config) dataplane.Config {
	cfg.Instance = cmp.Or(cfg.Instance, "default")
	cfg.Backend = cmp.Or(cfg.Backend, flow.Auto)
	m := &cfg.Mirror
	m.Path = cfg.MirrorPath()
	m.HistoryPeriod = cmp.Or(m.HistoryPeriod, defaultHistoryPeriod)
	if m.History == -1 {
		m.HistoryPeriod = 0
	}
	m.Mode = cmp.Or(m.Mode, 0o644)
	cfg.XDP.PinDir = cfg.PinDir()
	cfg.XDP.MaxFlows = cmp.Or(cfg.XDP.MaxFlows, xdp.DefaultMaxFlows())
	cfg.XDP.WorstCost = cmp.Or(cfg.XDP.WorstCost, dataplane.DefaultWorstCost)
	return cfg
}

// version returns the version of the module that this binary was built from.
func version() string {
	if bi, ok := debug.ReadBuildInfo(); ok {
		return bi.Main.Version
	}
	return "unknown"
}
