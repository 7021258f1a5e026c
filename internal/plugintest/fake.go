package plugintest

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/flow"
)

// fakeBuffer is how many events a receiver may lag behind.
const fakeBuffer = 64

// Fake is an instance in memory. It counts nothing, but keeps the contract of dataplane.Service. All methods may be called
// from any goroutine.
type Fake struct {
	info dataplane.Info

	period     time.Duration // the poll period; guarded by mu
	mu         sync.Mutex
	closed     bool
	order      []string // names in the order of addition
	placed     map[string]dataplane.Placement
	added      map[string]bool // flows added by AddFlows, perhaps removed since
	next       uint32
	conditions []dataplane.Condition
	pairs      map[string]*fakePair
	words      map[string]dataplane.ReservedWords
	receivers  map[chan dataplane.Event]*uint64 // number of lost events by channel
	interfaces []dataplane.Interface
}

var _ dataplane.Service = (*Fake)(nil)

// NewFake returns a Fake with the flows of cfg. It is a plugin.Factory.
func NewFake(ctx context.Context, cfg dataplane.Config, log *slog.Logger) (dataplane.Service, error) {
	if cfg.Instance == "" {
		cfg.Instance = "default"
	}
	if cfg.Mirror.Path == "" {
		cfg.Mirror.Path = "/run/flowtally/" + cfg.Instance + ".mirror"
	}
	f := &Fake{
		info: dataplane.Info{
			Instance: cfg.Instance, Mirror: cfg.Mirror.Path, Version: "fake", PID: os.Getpid(), Started: time.Now(),
		},
		period:    cfg.Poll.Period,
		placed:    make(map[string]dataplane.Placement),
		added:     make(map[string]bool),
		words:     make(map[string]dataplane.ReservedWords),
		receivers: make(map[chan dataplane.Event]*uint64), interfaces: slices.Clone(cfg.Interfaces),
	}
	if err := cfg.Validate(); len(cfg.QueuePairs) > 0 && err != nil {
		return nil, err
	}
	f.makePairs(cfg.QueuePairs)
	if _, err := f.AddFlows(ctx, cfg.Flows...); err != nil {
		return nil, err
	}
	clear(f.added)
	for _, name := range cfg.Words {
		if _, err := f.ReserveWords(ctx, name); err != nil {
			return nil, err
		}
	}
	if log != nil {
		log.Info("fake instance started", "instance", cfg.Instance, "flows", len(cfg.Flows))
	}
	return f, nil
}

// enter locks f, or returns the error for a call after Close or the end of ctx.
func (f *Fake) enter(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	f.mu.Lock()
	if f.closed {
		f.mu.Unlock()
		return dataplane.ErrClosed
	}
	return nil
}

// Info implements dataplane.Service.
func (f *Fake) Info(ctx context.Context) (dataplane.Info, error) {
	if err := f.enter(ctx); err != nil {
		return dataplane.Info{}, err
	}
	defer f.mu.Unlock()
	return f.info, nil
}

// AddFlows implements dataplane.Service.
func (f *Fake) AddFlows(ctx context.Context, flows ...flow.Flow) ([]dataplane.Placement, error) {
	if err := f.enter(ctx); err != nil {
		return nil, err
	}
	defer f.mu.Unlock()
	names := make(map[string]bool, len(flows))
	for _, fl := range flows {
		if err := fl.Validate(); err != nil {
			return nil, fmt.Errorf("adding flow %q: %w: %w", fl.Name, dataplane.ErrInvalid, err)
		}
		if _, have := f.placed[fl.Name]; have || names[fl.Name] {
			return nil, fmt.Errorf("adding flow %q: %w", fl.Name, dataplane.ErrExists)
		}
		if err := placeable(fl); err != nil {
			return nil, err
		}
		names[fl.Name] = true
	}
	out := make([]dataplane.Placement, len(flows))
	for i, fl := range flows {
		out[i], f.added[fl.Name] = f.place(fl), true
		f.order = append(f.order, fl.Name)
		f.send(dataplane.Event{Kind: dataplane.FlowAdded, Object: fl.Name})
	}
	return out, nil
}

// Interfaces implements dataplane.Service.
func (f *Fake) Interfaces(ctx context.Context) ([]dataplane.Interface, error) {
	if err := f.enter(ctx); err != nil {
		return nil, err
	}
	defer f.mu.Unlock()
	return slices.Clone(f.interfaces), nil
}

func placeable(fl flow.Flow) error {
	if fl.Backend != "" && fl.Backend != "auto" && fl.Backend != "sim" {
		return fmt.Errorf("adding flow %q: %w: %s: this instance is a fake", fl.Name, dataplane.ErrUnplaced, fl.Backend)
	}
	return nil
}

// place returns a placement with a new counter.
func (f *Fake) place(fl flow.Flow) dataplane.Placement {
	fl.Labels = maps.Clone(fl.Labels)
	f.next++
	p := dataplane.Placement{
		Flow: fl, Source: dataplane.Source{Backend: "sim"},
		Counter:  dataplane.Handle{Index: f.next - 1, Generation: 1},
		Rejected: []dataplane.Rejection{{Backend: "xdp", Reason: "this instance is a fake"}},
	}
	f.placed[fl.Name] = p
	return p
}

// RemoveFlows implements dataplane.Service.
func (f *Fake) RemoveFlows(ctx context.Context, names ...string) error {
	if err := f.enter(ctx); err != nil {
		return err
	}
	defer f.mu.Unlock()
	for _, name := range names {
		if _, have := f.placed[name]; !have {
			return fmt.Errorf("removing flow %q: %w", name, dataplane.ErrNotFound)
		}
	}
	for _, name := range names {
		if _, have := f.placed[name]; !have {
			continue // a name given twice
		}
		delete(f.placed, name)
		f.order = slices.DeleteFunc(f.order, func(s string) bool { return s == name })
		f.send(dataplane.Event{Kind: dataplane.FlowRemoved, Object: name})
	}
	return nil
}

// Placements implements dataplane.Service.
func (f *Fake) Placements(ctx context.Context, names ...string) ([]dataplane.Placement, error) {
	if err := f.enter(ctx); err != nil {
		return nil, err
	}
	defer f.mu.Unlock()
	for i, name := range f.order {
		p := f.placed[name]
		p.Order = uint32(i) + 1
		f.placed[name] = p
	}
	all := slices.SortedFunc(maps.Values(f.placed), func(a, b dataplane.Placement) int {
		return strings.Compare(a.Flow.Name, b.Flow.Name)
	})
	if len(names) == 0 {
		return all, nil
	}
	return slices.DeleteFunc(all, func(p dataplane.Placement) bool { return !slices.Contains(names, p.Flow.Name) }), nil
}

// Order returns the names of the flows in the order of addition.
func (f *Fake) Order() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.order)
}

// Conditions implements dataplane.Service.
func (f *Fake) Conditions(ctx context.Context) ([]dataplane.Condition, error) {
	if err := f.enter(ctx); err != nil {
		return nil, err
	}
	defer f.mu.Unlock()
	out := slices.Clone(f.conditions)
	slices.SortStableFunc(out, func(a, b dataplane.Condition) int { return int(b.Severity) - int(a.Severity) })
	return out, nil
}

// SetConditions replaces the result of Conditions.
func (f *Fake) SetConditions(conditions ...dataplane.Condition) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.conditions = slices.Clone(conditions)
}

// Events implements dataplane.Service.
func (f *Fake) Events(ctx context.Context) (<-chan dataplane.Event, error) {
	if err := f.enter(ctx); err != nil {
		return nil, err
	}
	defer f.mu.Unlock()
	ch := make(chan dataplane.Event, fakeBuffer)
	f.receivers[ch] = new(uint64)
	context.AfterFunc(ctx, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.hangUp(ch)
	})
	return ch, nil
}

// Emit sends an event to every receiver. A zero Time becomes the current time.
func (f *Fake) Emit(ev dataplane.Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.send(ev)
}

func (f *Fake) send(ev dataplane.Event) {
	if ev.Time.IsZero() {
		ev.Time = time.Now()
	}
	for ch, lost := range f.receivers {
		if len(ch) == cap(ch) {
			select {
			case old := <-ch: // now there is room, because f.mu excludes other senders
				*lost += old.Lost + 1
			default:
			}
		}
		e := ev
		e.Lost += *lost
		*lost = 0
		ch <- e
	}
}

func (f *Fake) hangUp(ch chan dataplane.Event) {
	if _, have := f.receivers[ch]; have {
		delete(f.receivers, ch)
		close(ch)
	}
}

// Close implements dataplane.Service.
func (f *Fake) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	for ch := range f.receivers {
		f.hangUp(ch)
	}
	return nil
}
