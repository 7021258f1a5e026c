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
	Degraded   bool                  // an interface that refuses to be counted on is a condition, not an error
	Config     dataplane.XDPConfig   // with PinDir and MaxFlows set
	// Flows are the configured flows. The Order of each is its index. Until RemoveStale, no others are installed.
	Flows []flow.Flow
	// Restart: this instance ran before under its host. If somebody took it off its hooks, it stays off.
	Restart bool
	Logger  *slog.Logger
	// FreeFor is how long the XDP hook of an interface must be free before counting moves from TCX to it; 0 means 30 s.
	FreeFor time.Duration
	Early   []string // as of xdp.Options
	// Kernel is as of xdp.Options. With one, the tickers of the backend are of Go's runtime.
	Kernel kernel.Kernel
}

// Backend counts flows in the kernel. It implements backend.SoftwareBackend.
type Backend struct {
	maxFlows  int
	worstCost int
	log       *slog.Logger
	rules     *xdp.Datapath
	adopted   bool   // the pins held counters, whose counts go on
	next      uint32 // the place, among the flows of its priority, of the flow whose Order is ordered
	ordered   uint32 // the first Order that no configured flow has

	mu    sync.Mutex // guards the fields below; link events take it too
	hooks *hooks
	flows map[string]*entry
	start *start // until RemoveStale
	// places holds, by Order, the places of the configured flows that the start refused, for a later Install, and of flows that
	// get another Order, until their change has ended.
	places map[uint32]uint32
}

// entry is a flow that has rules in the tables. It is small, because an instance may have a million.
type entry struct {
	owner   string
	counter uint32
	order   uint32 // its place in the tables
	active  bool   // its counts are published, or another flow depends on them
	drops   bool   // its rules drop, except on the interfaces in apart
	left    bool   // its rules have left the tables, and Remove follows

	own    map[string]xdp.Counter // by interface: counters of packets of that interface alone
	apart  map[string]struct{}    // interfaces on which the rules count in own
	placed *backend.Placed        // the flow, with own
}

// DefaultMaxFlows is the MaxFlows of a configuration that names none, on this host.
func DefaultMaxFlows() int {
	cpus, err := ebpf.PossibleCPU()
	if err != nil { // xdp.Open says why
		cpus = 1
	}
	return min(65536, xdp.MostCounters(cpus))
}

// New opens the rule set, finds the rules and programs of an earlier process, and watches the links.
func New(o Options) (*Backend, error) {
	if len(o.Interfaces) == 0 {
		return nil, fmt.Errorf("backend xdp: no interface to count on; name one under interfaces: %w", dataplane.ErrInvalid)
	}
	rules, err := xdp.Open(xdp.Options{PinDir: o.Config.PinDir, MaxRules: o.Config.MaxFlows, WorstCost: o.Config.WorstCost, Early: o.Early, StayDetached: o.Restart, Logger: o.Logger, Kernel: o.Kernel})
	if err != nil {
		return nil, fmt.Errorf("opening the rule set at %s for xdp.max_flows %d: %w", o.Config.PinDir, o.Config.MaxFlows, translate(err))
	}
	ns, err := openNamespace(o.Kernel)
	if err != nil {
		return nil, errors.Join(err, rules.Close())
	}
	b := &Backend{maxFlows: o.Config.MaxFlows, worstCost: o.Config.WorstCost, log: o.Logger, rules: rules, flows: make(map[string]*entry)}
	if b.hooks, err = newHooks(o, rules, ns, &b.mu); err != nil {
		return nil, errors.Join(err, rules.Close(), ns.Close())
	}
	b.hooks.replace = b.replaceInterfaces
	if err = b.takeUpPins(o.Flows); err == nil {
		err = b.hooks.watch()
	}
	if err != nil {
		return nil, errors.Join(err, b.Close(true))
	}
	return b, nil
}

// takeUpPins decides what the start makes of the pins. Of that, it only renames the counters that renamed flows take over.
func (b *Backend) takeUpPins(configured []flow.Flow) error {
	found := pins{counters: b.rules.Counters(), rules: b.rules.Rules()}
	found.changing, found.dropped = b.rules.Unfinished()
	b.adopted = len(found.counters) > 0

	all := make([]wanted, len(configured))
	for i, f := range configured {
		all[i].name = f.Name
		if b.adopted {
			all[i].owner = owner(f)
			all[i].rules, _ = compile(backend.Placed{Flow: f}, 0, b.rules.Port) // Install returns the error
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

// place returns the place of a flow among the flows of its priority.
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

// RemoveStale removes the rules, counters and attachments of an earlier process that no flow and no interface of this
// process uses. It ends the start.
func (b *Backend) RemoveStale(context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.start != nil {
		for _, c := range b.rules.Counters() {
			b.start.idle[c.ID] = true // also of a configured flow that was refused
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
	b.rules.NoteChange(false) // the installed flows have declared what the last process left unfinished
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

// A mark of the rule set is a mark of the backend.
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

// Outage implements backend.SoftwareBackend.
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

// Conditions lists the interfaces that are not counted on, and the interfaces that are counted
// on in a way that costs more or sees less.
func (b *Backend) Conditions() []dataplane.Condition {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.hooks.conditions()
}

// Changed implements backend.Backend.
func (b *Backend) Changed() <-chan struct{} { return b.hooks.changed }

// SetIdle implements backend.Idler.
func (b *Backend) SetIdle(idle bool) { b.hooks.heldTicker.setIdle(idle) }

// Close stops the watcher. With keep, rules, counters and programs stay pinned, unless this process made
// them and its start failed.
func (b *Backend) Close(keep bool) error {
	b.mu.Lock()
	if b.hooks.closed {
		b.mu.Unlock()
		return nil
	}
	b.hooks.closed = true
	started := b.start == nil
	keep = keep && (started || b.adopted)
	if started { // otherwise the next process declares the unfinished change that this one found
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

// trim detaches programs from hooks that no flow needs. Before RemoveStale it detaches none: which of an earlier
// process's hooks are needed is not known then.
func (b *Backend) trim() error {
	if b.start != nil {
		return nil
	}
	return b.hooks.trim()
}

// State is the part of a Backend's state that tests of the whole engine check.
type State struct {
	Rules  *xdp.Datapath
	Demand int // how many needs of hooks there are
	Kept   int // pinned rules in memory that no installed flow has; 0 after RemoveStale
	// Refreshes is how often the held hooks were listed, which costs a system call for each.
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

// CheckAll checks every interface now, as the watcher of links does every 2 s. It is for tests.
func (b *Backend) CheckAll() { b.hooks.checkAll(true) }
