package engine

import (
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
	"github.com/flowtally/flowtally/dataplane/engine/poll"
	"github.com/flowtally/flowtally/dataplane/engine/queuepair"
	"github.com/flowtally/flowtally/dataplane/engine/trial"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/ibv"
	"github.com/flowtally/flowtally/internal/inject"
	"github.com/flowtally/flowtally/shm"
)

// Options are what an embedder may hand in beside the configuration.
type Options struct {
	Logger *slog.Logger // nil discards
	// Trial starts a process that tries RDMA devices out before this one uses them, SelfTrial where this
	// program's main function calls TrialMain. The zero value: devices are used untried.
	Trial TrialCommand
	// Calls is told of every call of a verb. It may be nil.
	Calls ibv.Calls
	// Excluded are RDMA devices that are left alone, and why; "" is libibverbs itself.
	Excluded map[string]string
}

// Engine counts flows and publishes them. It satisfies dataplane.Service.
type Engine struct {
	cfg      dataplane.Config
	log      *slog.Logger
	writer   *shm.Writer
	mirror   mirrorFile
	backends []backend.Backend
	given    bool             // the backends are of package inject: a flow that names no backend may go to each
	absent   map[string]error // backends that the configuration names and that are not open, and why
	stack    *stack           // nil: no overlay
	pairs    *queuepair.Set
	guard    *trial.Guard
	plan     *poll.Plan
	poller   *poll.Poller
	events   broadcaster
	info     dataplane.Info

	stop    context.CancelFunc // ends the goroutines
	stopped sync.WaitGroup

	life    context.Context // of control calls; ends when Close is called
	quit    context.CancelFunc
	closing sync.Once
	shut    chan struct{} // closed when Close has the instance to itself
	ended   chan error    // what Close answers
	bound   time.Duration // CloseBound; tests are less patient

	raisedMu sync.Mutex
	raised   map[string]dataplane.Condition // by code and object

	ctl    control // serialises control calls; guards what follows
	flows  map[string]*counted
	adding []*counted // that are not in flows yet
	// inherited is what the mirror still held of an earlier process, until resume
	// is through: by name, without those that were asked for again; renamed has all of it, by cookie.
	inherited map[string]*inherited
	renamed   map[uint64]*inherited
	unsettled bool // the last arrange left some flow where it is not to be
	waiting   bool // some flow has lost its device and could not be moved: try again
	order     uint32
	choices   map[flow.Backend]*choice // by the word of flow.Flow.Backend; see Engine.choice
}

var _ dataplane.Service = (*Engine)(nil)

// New starts an instance: it creates or takes over the mirror, installs the
// configured flows, drops what an earlier process left and nobody asked for,
// and polls until Close.
func New(ctx context.Context, cfg dataplane.Config, opts Options) (_ *Engine, err error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("configuration: %w: %w", dataplane.ErrInvalid, err)
	}
	e := &Engine{
		cfg: withDefaults(cfg), log: opts.Logger, ctl: newControl(), bound: backend.CloseBound,
		shut: make(chan struct{}), ended: make(chan error, 1),
		flows: make(map[string]*counted), raised: make(map[string]dataplane.Condition),
		choices: make(map[flow.Backend]*choice),
	}
	if e.log == nil {
		e.log = slog.New(slog.DiscardHandler)
	}
	e.guard = trial.New(trial.Options{
		Command: opts.Trial, RDMA: e.cfg.RDMA, QueuePairs: e.cfg.QueuePairs, Calls: opts.Calls, Excluded: opts.Excluded, Logger: e.log,
	})
	e.life, e.quit = context.WithCancel(context.Background())
	defer func() {
		if err != nil {
			e.quit()
			err = errors.Join(err, e.pairs.Close(), e.release(true, (*shm.Writer).Discard))
		}
	}()
	if e.writer, err = createMirror(e.cfg, e.log); err != nil {
		return nil, err
	}
	if e.backends = inject.From(ctx); e.backends == nil {
		if e.backends, e.absent, err = openBackends(ctx, e.cfg, e.log, e.guard); err != nil {
			return nil, err
		}
	} else {
		e.given = true
	}
	e.stack = newStack(e.backends, e.absent, e.cfg.RDMA.Audit)
	e.plan = poll.NewPlan(e.cfg.Mirror.HistoryPeriod)
	e.pairs = e.newQueuePairs()
	if err := e.resume(ctx); err != nil {
		return nil, err
	}
	e.info = dataplane.Info{
		Instance: e.cfg.Instance, Mirror: e.cfg.Mirror.Path, Version: version(), PID: os.Getpid(), Started: time.Now(),
	}
	e.start()
	return e, nil
}

// resume installs the configured flows over what the mirror and the backends
// still hold of an earlier process, then lets go of the rest.
func (e *Engine) resume(ctx context.Context) error {
	e.ctl.Lock()
	defer e.ctl.Unlock()
	e.inherit()
	flows := e.cfg.Flows
	e.cfg.Flows = nil // Engine.flows has them from here on
	if _, err := e.add(ctx, flows, nil); err != nil {
		return err
	}
	if err := e.startQueuePairs(); err != nil {
		return err
	}
	for _, old := range e.inherited {
		e.plan.Remove(old.Handle.Index)
		if err := e.writer.Remove(old.Handle); err != nil {
			return fmt.Errorf("removing the counter %q of an earlier run: %w", old.Name, err)
		}
	}
	e.inherited, e.renamed = nil, nil
	for _, b := range e.backends {
		if err := b.Settle(ctx); err != nil {
			return fmt.Errorf("settling backend %s: %w", b.Name(), err)
		}
	}
	return nil
}

// start runs the poller and the watcher of conditions until Close.
func (e *Engine) start() {
	ctx, stop := context.WithCancel(context.Background())
	e.stop = stop
	e.poller = poll.New(poll.Options{Plan: e.plan, Writer: e.writer, Config: e.cfg.Poll, Logger: e.log})
	e.writer.SetState(shm.Run)
	e.stopped.Go(func() { e.poller.Run(ctx) })
	e.stopped.Go(func() { e.watch(ctx) })
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
	return e.events.subscribe(ctx), nil
}

// Close publishes a last cycle, marks the mirror as halted and stops counting,
// or leaves the kernel counting where the configuration keeps the pins. A control call that
// is under way ends at its next command; for a device that does not answer that one
// Close does not wait longer than CloseBound, and goes on behind its caller.
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
		return fmt.Errorf("closing instance %s: a device has not answered a control call for %v: the instance ends when it does, or with the process", e.cfg.Instance, e.bound)
	}
	err := <-e.ended
	e.ended <- nil // for who closes again
	return err
}

// end is called with ctl held, once.
func (e *Engine) end() error {
	err := e.pairs.Close() // before the last cycle, which publishes what they have counted
	e.alignAtEnd()
	e.stop()
	e.stopped.Wait()
	e.events.close()
	return errors.Join(err, e.release(e.cfg.XDP.KeepPins, (*shm.Writer).Close))
}

// release lets go of what outlives this process, the pins, then of the mirror, whose lock
// keeps a second instance away from them. Overlays come last: nothing of theirs stays, and a
// slow device must not keep the others from a good end. closeMirror ends the writer.
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
	if cfg.Instance == "" {
		cfg.Instance = "default"
	}
	if cfg.Backend == "" {
		cfg.Backend = flow.Auto
	}
	m := &cfg.Mirror
	if m.Path == "" {
		m.Path = shm.DefaultPath(cfg.Instance)
	}
	if m.HistoryPeriod == 0 {
		m.HistoryPeriod = defaultHistoryPeriod
	}
	if m.History == -1 {
		m.HistoryPeriod = 0
	}
	if m.Mode == 0 {
		m.Mode = 0o644
	}
	if cfg.XDP.PinDir == "" {
		cfg.XDP.PinDir = "/sys/fs/bpf/flowtally/" + cfg.Instance
	}
	if cfg.XDP.MaxFlows == 0 {
		cfg.XDP.MaxFlows = 65536
	}
	return cfg
}

// version is that of the module this binary was built from.
func version() string {
	if bi, ok := debug.ReadBuildInfo(); ok {
		return bi.Main.Version
	}
	return "unknown"
}
