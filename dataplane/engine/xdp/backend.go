package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/shm"
	"github.com/flowtally/flowtally/xdp"
)

// xdpBackend counts in the kernel: one rule set for all interfaces of the instance.
type xdpBackend struct {
	cfg     dataplane.Config // without flows from Settle on
	log     *slog.Logger
	rules   *xdp.RuleSet
	adopted bool // the pins were there: counts of before go on
	changed chan struct{}
	stop    context.CancelFunc
	stopped sync.WaitGroup

	ns *backend.Netns // where the interfaces are

	mu      sync.Mutex
	settled bool
	flows   map[string]*xdpFlow
	// Over the rules of a dead process, until Settle: all rules in the tables, and those of each of flows. Else both
	// are nil: the tables hold the rules of flows, and rulesOf compiles them anew, which takes far less memory.
	there     map[xdp.Rule]bool
	installed map[string][]xdp.Rule
	next      uint32              // place of the next rule among those of its priority
	demand    map[string]sides    // by interface, "" for all: how many flows need their counts
	held      []xdp.Attachment    // as of the last look
	since     map[hookName]uint64 // by hook that is held: which taking of a hook it was
	takings   uint64              // so far; those up to inherited are of before this process
	inherited uint64
	asked     map[string]xdp.AttachOptions // by interface: what was tried to take, found or not
	// by interface: why it is not counted on, and why not in a better mode
	missing, rejected map[string]error
	before            map[string][]xdp.Neighbour // by interface: the TCX programs that run before ours
	receive           map[string]received        // by interface: what happens to its packets before XDP sees them
	vlans             map[int]vlanDevice         // by index
	unpinned          string                     // what the last look found of pins that were gone
	closed            bool
}

// xdpFlow is small: there may be a million.
type xdpFlow struct {
	owner   string
	counter uint32
	order   uint32 // its place in the tables
	served  bool   // its counts are published, or another flow depends on them
	drops   bool   // its rules do, but for those of interfaces in apart

	own   map[string]xdp.Counter // by interface: counters of packets of that interface alone
	apart map[string]struct{}    // interfaces on which the rules count in own
}

func newXDPBackend(ctx context.Context, cfg dataplane.Config, log *slog.Logger) (*xdpBackend, error) {
	if len(cfg.Interfaces) == 0 {
		return nil, fmt.Errorf("backend xdp: no interface to count on; name one under interfaces: %w", dataplane.ErrInvalid)
	}
	rules, err := xdp.Open(xdp.Options{PinDir: cfg.XDP.PinDir, MaxRules: cfg.XDP.MaxFlows, Logger: log})
	if err != nil {
		return nil, fmt.Errorf("opening the rule set at %s: %w", cfg.XDP.PinDir, translate(err))
	}
	b := &xdpBackend{
		cfg: cfg, log: log, rules: rules, changed: make(chan struct{}, 1),
		flows: make(map[string]*xdpFlow), demand: make(map[string]sides), since: make(map[hookName]uint64), asked: make(map[string]xdp.AttachOptions),
		missing: make(map[string]error), rejected: make(map[string]error), before: make(map[string][]xdp.Neighbour),
		receive: make(map[string]received), vlans: make(map[int]vlanDevice),
	}
	if b.ns, err = backend.CurrentNetns(); err != nil {
		return nil, errors.Join(err, rules.Close())
	}
	b.adopted = len(rules.Counters()) > 0
	b.seeHeld()
	b.inherited = b.takings
	if found := rules.Rules(); len(found) > 0 {
		b.there, b.installed = make(map[xdp.Rule]bool), make(map[string][]xdp.Rule)
		for _, r := range found {
			b.there[r] = true
		}
	}
	if err := b.watch(); err != nil {
		return nil, errors.Join(err, b.Close(true))
	}
	return b, nil
}

// translate gives the errors of package xdp the sentinels that cross the wire; their text stays.
func translate(err error) error {
	t := &translated{error: err}
	for _, s := range []struct{ from, to error }{
		{xdp.ErrInUse, dataplane.ErrInUse}, {xdp.ErrPermission, dataplane.ErrPermission}, {xdp.ErrFull, dataplane.ErrFull},
		{xdp.ErrMasks, dataplane.ErrMasks}, {xdp.ErrBucket, dataplane.ErrBucket}, {xdp.ErrIncompatible, dataplane.ErrIncompatible},
	} {
		if errors.Is(err, s.from) {
			t.is = append(t.is, s.to)
		}
	}
	if len(t.is) == 0 {
		return err
	}
	return t
}

// translated is an error that satisfies other sentinels too.
type translated struct {
	error
	is []error
}

func (t *translated) Unwrap() []error { return append([]error{t.error}, t.is...) }

func (b *xdpBackend) Name() string { return "xdp" }

// Settle removes rules, counters and attachments of an earlier process that
// no flow and no interface of this one asked for.
func (b *xdpBackend) Settle(context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.settled = true
	wanted := make(map[uint32]bool)
	keep := make(map[xdp.Rule]bool)
	for _, x := range b.flows {
		wanted[x.counter] = true
	}
	for _, rules := range b.installed {
		for _, r := range rules {
			keep[r] = true
		}
	}
	var stale []xdp.Rule
	for r := range b.there {
		if !keep[r] {
			stale = append(stale, r)
		}
	}
	if err := b.drop(stale); err != nil {
		return err
	}
	b.there, b.installed, b.cfg.Flows = nil, nil, nil
	var idle []uint32
	for _, c := range b.rules.Counters() {
		if !wanted[c.ID] {
			idle = append(idle, c.ID)
		}
	}
	if err := b.free(idle); err != nil {
		return err
	}
	for _, a := range b.rules.Attachments() {
		if !slices.ContainsFunc(b.cfg.Interfaces, func(i dataplane.Interface) bool { return i.Name == a.Interface }) {
			if err := b.rules.Detach(a.Interface); err != nil {
				return fmt.Errorf("detaching from %s, which is not configured any more: %w", a.Interface, err)
			}
		}
	}
	b.seeHeld()
	return b.trim()
}

func (b *xdpBackend) Read(ids []uint32, dst []backend.Pair) error {
	return xdp.ReadPairs(b.rules, ids, dst)
}

// ReadRows implements RowCounters.
func (b *xdpBackend) ReadRows(first uint32, dst []shm.Value, at int64) error {
	return xdp.ReadRows(b.rules, first, dst, at)
}

// source says where a flow is counted: on the interfaces that it asks for and that are there.
func (b *xdpBackend) source(f flow.Flow) dataplane.Source {
	hook := hookOf(f)
	src := dataplane.Source{Backend: flow.XDP}
	for _, a := range b.held {
		if a.Hook == hook && (f.Interface == "" || f.Interface == a.Interface) {
			src.Devices = append(src.Devices, dataplane.Device{Backend: flow.XDP, Name: a.Interface, Mode: dataplane.Mode(a.Mode)})
		}
	}
	return src
}

func (b *xdpBackend) Source(f backend.Placed) dataplane.Source {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.source(f.Flow)
}

// Close leaves everything pinned where keep is true, except what nobody but a
// start that failed has made.
func (b *xdpBackend) Close(keep bool) error {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return nil
	}
	b.closed = true
	keep = keep && (b.settled || b.adopted)
	b.mu.Unlock()
	if b.stop != nil {
		b.stop()
		b.stopped.Wait()
	}
	defer b.ns.Close()
	if keep {
		return b.rules.Close()
	}
	return b.rules.Destroy()
}
