package xdp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/cilium/ebpf"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/kernel"
	"github.com/flowtally/flowtally/shm"
	"github.com/flowtally/flowtally/xdp"
)

// Options are the settings of a Backend.
type Options struct {
	Interfaces []dataplane.Interface // names and patterns, at least one
	Degraded   bool                  // start without refusing interfaces, and list them as conditions
	Config     dataplane.XDPConfig   // with PinDir and MaxFlows set
	// Flows are the configured flows. The Order of each must be its index. Install takes no other flow before RemoveStale.
	Flows []flow.Flow
	// Restart marks a restart by the host. If an operator has detached the programs meanwhile, they stay detached.
	Restart bool
	Logger  *slog.Logger
	// FreeFor is how long the XDP hook of an interface must be free before counting moves from TCX to it; 0 means 30 s.
	FreeFor time.Duration
	Early   []string // see xdp.Options
	// Kernel replaces the kernel in tests, as in xdp.Options. The backend then takes its tickers from Go's runtime.
	Kernel kernel.Kernel
}

// Backend counts flows in the kernel. It implements backend.SoftwareBackend.
type Backend struct {
	maxFlows  int
	worstCost int
	log       *slog.Logger
	rules     *xdp.Datapath
	adopted   bool   // the start has found pinned counters
	ordered   uint32 // the first Order above those of the configured flows
	next      uint32 // the place of the flow with Order ordered, among the flows of its priority

	mu    sync.Mutex // guards the fields below; link events take it too
	hooks *hooks
	flows map[string]*entry
	start *start // until RemoveStale
	// places maps an Order to a place in the tables, where ordered and next do not give it: for configured flows the start has
	// refused, because a later Install may add them, and for flows with another Order, as long as their change lasts.
	places map[uint32]uint32
}

// entry is an installed flow. Keep it small: an instance may have a million flows.
type entry struct {
	owner   string
	counter uint32
	order   uint32 // the place in the tables
	active  bool   // its counts are published, or another flow depends on them
	drops   bool   // its rules drop packets; on interfaces apart they always follow the flow's action
	left    bool   // Alter has taken its rules out of the tables, and Remove follows

	// CountApart gives a flow these. Few flows have them.
	own    map[string]xdp.Counter // by interface; kept until Remove, because the poller may still read them
	apart  map[string]struct{}    // interfaces on which the rules count in own
	placed *backend.Placed        // the flow
}

// DefaultMaxFlows is MaxFlows where the configuration names none. The counters take memory per CPU, so it depends on the host.
func DefaultMaxFlows() int {
	cpus, err := ebpf.PossibleCPU()
	if err != nil { // xdp.Open will fail for the same reason, and explain it
		cpus = 1
	}
	return min(65536, xdp.MostCounters(cpus))
}

// New opens the tables, finds the rules and programs of an earlier process, and begins to watch the links.
func New(o Options) (*Backend, error) {
	if len(o.Interfaces) == 0 {
		return nil, fmt.Errorf("backend xdp: no interface to count on; name one under interfaces: %w", dataplane.ErrInvalid)
	}
	rules, err := xdp.Open(xdp.Options{
		PinDir:       o.Config.PinDir,
		MaxRules:     o.Config.MaxFlows,
		WorstCost:    o.Config.WorstCost,
		Early:        o.Early,
		StayDetached: o.Restart,
		Logger:       o.Logger,
		Kernel:       o.Kernel,
	})
	if err != nil {
		return nil, fmt.Errorf("opening the rule set at %s for xdp.max_flows %d: %w", o.Config.PinDir, o.Config.MaxFlows, translate(err))
	}
	ns, err := openNamespace(o.Kernel)
	if err != nil {
		return nil, errors.Join(err, rules.Close())
	}

	b := &Backend{
		maxFlows:  o.Config.MaxFlows,
		worstCost: o.Config.WorstCost,
		log:       o.Logger,
		rules:     rules,
		flows:     make(map[string]*entry),
	}
	if b.hooks, err = newHooks(o, rules, ns, &b.mu); err != nil {
		return nil, errors.Join(err, rules.Close(), ns.Close())
	}
	b.hooks.replace = b.replaceInterfaces

	if err = b.matchPins(o.Flows); err == nil {
		err = b.hooks.watch()
	}
	if err != nil {
		return nil, errors.Join(err, b.Close(true))
	}
	return b, nil
}

// matchPins decides which flow takes over which pinned counter. It only writes the new names of renamed flows; Install and
// RemoveStale do the rest.
func (b *Backend) matchPins(configured []flow.Flow) error {
	found := pins{counters: b.rules.Counters(), rules: b.rules.Rules()}
	found.changing, found.dropped = b.rules.Unfinished()
	b.adopted = len(found.counters) > 0

	all := make([]wanted, len(configured))
	for i, f := range configured {
		all[i].name = f.Name
		if b.adopted {
			all[i].owner = owner(f)
			all[i].rules, _ = compile(backend.Placed{Flow: f}, 0, b.rules.Port) // Install reports the error
		}
	}

	b.start = match(all, found)
	b.next = b.start.next
	b.ordered = uint32(len(configured))
	for id, owner := range b.start.renamed {
		if err := b.rules.Rename(id, owner); err != nil {
			return translate(err)
		}
	}
	return nil
}

// place returns the place of a flow among the flows of its priority. Places outlive the process, and Orders do not.
func (b *Backend) place(f backend.Placed) uint32 {
	if b.start != nil {
		if x, ok := b.start.fates[f.Name]; ok {
			return x.place
		}
	}
	if place, ok := b.places[f.Order]; ok {
		return place
	}
	return b.next + f.Order - b.ordered
}

// Name implements backend.Backend.
func (b *Backend) Name() string { return "xdp" }

// RemoveStale ends the start. It removes rules, counters and attachments of an earlier process, unless a flow or an interface
// of this process has taken them over.
func (b *Backend) RemoveStale(context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.start != nil {
		for _, c := range b.rules.Counters() {
			b.start.idle[c.ID] = true // the counters of configured but refused flows too
		}
		for _, x := range b.flows {
			delete(b.start.idle, x.counter)
		}
		if err := b.dropIdle(); err != nil {
			return err
		}
		b.places = b.start.placesWithout(b.flows)
		b.start = nil
	}
	if err := b.hooks.detachUnconfigured(); err != nil {
		return err
	}
	b.rules.NoteChange(false) // Install has returned the gaps of the last process's unfinished change
	return b.hooks.trim()
}

// Read implements backend.Backend.
func (b *Backend) Read(ids []uint32, dst []backend.Pair) error {
	return xdp.ReadPairs(b.rules, ids, dst)
}

// ReadRows fills dst with the counters from first on, each with the sample time at.
func (b *Backend) ReadRows(first uint32, dst []shm.Value, at int64) error {
	return xdp.ReadRows(b.rules, first, dst, at)
}

// Marks hands the marks of package xdp out as they are, so both packages must group as many slots.
var _ = [1]struct{}{}[backend.Marked-xdp.Marked]

// Marks implements backend.RowCounters.
func (b *Backend) Marks(dst []uint32) error { return b.rules.Marks(dst) }

// LiveMap implements backend.LiveCounters.
func (b *Backend) LiveMap() (shm.LiveMap, uint32, error) {
	m, err := b.rules.LiveMap()
	if err != nil {
		return shm.LiveMap{}, 0, translate(err)
	}
	return shm.LiveMap{FD: m.FD, ID: m.ID, CPUs: m.CPUs, Counters: m.Counters, Stride: m.Stride}, uint32(m.Epoch), nil
}

// LiveBase implements backend.LiveCounters.
func (b *Backend) LiveBase(id uint32) backend.Pair { return backend.Pair(b.rules.Base(id)) }

// Source implements backend.Backend.
func (b *Backend) Source(f backend.Placed) dataplane.Source {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.hooks.source(f.Flow)
}

// Look implements backend.SoftwareBackend.
func (b *Backend) Look() { b.hooks.look() }

// Now implements backend.SoftwareBackend.
func (b *Backend) Now() backend.Moment { return backend.Moment(b.rules.Now()) }

// Outage implements backend.SoftwareBackend. Like Look and Now it does not take mu, which an attach may hold for long.
func (b *Backend) Outage(f backend.Placed) (last backend.Moment, open bool) {
	at, open := b.hooks.lost(f.Flow)
	return backend.Moment(at), open
}

// Rely implements backend.SoftwareBackend.
func (b *Backend) Rely(f backend.Placed) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.hooks.rely(f.Flow)
}

// CompleteSince implements backend.SoftwareBackend.
func (b *Backend) CompleteSince(f backend.Placed) (since backend.Moment, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	at, ok := b.hooks.completeSince(f.Flow)
	return backend.Moment(at), ok
}

// Conditions implements backend.Backend: interfaces without counting, and interfaces where counting costs more or sees less
// than it could.
func (b *Backend) Conditions() []dataplane.Condition {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.hooks.conditions()
}

// Changed implements backend.Backend.
func (b *Backend) Changed() <-chan struct{} { return b.hooks.changed }

// SetIdle implements backend.Idler.
func (b *Backend) SetIdle(idle bool) { b.hooks.heldTicker.setIdle(idle) }

// Close stops the watcher. With keep, rules, counters and programs stay pinned, and counting goes on without the process.
// A failed start keeps only what an earlier process had pinned.
func (b *Backend) Close(keep bool) error {
	b.mu.Lock()
	if b.hooks.closed {
		b.mu.Unlock()
		return nil
	}
	b.hooks.closed = true
	started := b.start == nil
	keep = keep && (started || b.adopted)
	if started { // else the note of the last process stays, and the next one returns its gaps
		b.rules.NoteChange(false)
	}
	b.mu.Unlock()
	b.hooks.stopWatch()
	defer b.hooks.ns.Close()
	if keep {
		return b.rules.Close()
	}
	return b.rules.Destroy()
}

// trim detaches programs from hooks without demand. Before RemoveStale it does nothing: the next Install may need the hooks of the
// earlier process.
func (b *Backend) trim() error {
	if b.start != nil {
		return nil
	}
	return b.hooks.trim()
}

// State is what tests of the whole engine check of a Backend.
type State struct {
	Rules  *xdp.Datapath
	Demand int // the sum of the demand of all hooks
	Kept   int // pinned rules in the plan of the start; 0 after RemoveStale
	// Refreshes counts the lists of held hooks. A list costs a system call per hook.
	Refreshes uint64
	// HeldPeriod is how often the held hooks are queried.
	HeldPeriod time.Duration
}

// Inspect returns the current state, for tests.
func (b *Backend) Inspect() State {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := State{Rules: b.rules, Refreshes: b.hooks.refreshes, HeldPeriod: b.hooks.heldTicker.now()}
	if b.start != nil {
		s.Kept = len(b.start.unclaimed)
	}
	for _, d := range b.hooks.demand {
		s.Demand += d.ingress + d.egress
	}
	return s
}

// CheckAll makes tests independent of the watcher's ticks: it checks every interface at once.
func (b *Backend) CheckAll() { b.hooks.checkAll(true) }
