package engine

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/xdp"
)

// xdpBackend counts in the kernel: one rule set for all interfaces of the instance.
type xdpBackend struct {
	cfg     dataplane.Config
	log     *slog.Logger
	rules   *xdp.RuleSet
	adopted bool // the pins were there: counts of before go on
	changed chan struct{}
	stop    context.CancelFunc
	stopped sync.WaitGroup

	mu      sync.Mutex
	settled bool
	there   map[xdp.Rule]bool // in the tables; until Settle also those of a dead process
	flows   map[string]*xdpFlow
	hooks   xdp.AttachOptions // the directions that some flow needs
	missing map[string]error  // why an interface is not counted on
	closed  bool
}

type xdpFlow struct {
	owner   string
	counter xdp.Counter
	rules   []xdp.Rule
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
		there: make(map[xdp.Rule]bool), flows: make(map[string]*xdpFlow), missing: make(map[string]error),
	}
	b.adopted = len(rules.Counters()) > 0
	for _, r := range rules.Rules() {
		b.there[r] = true
	}
	if err := b.watch(); err != nil {
		return nil, errors.Join(err, b.Close(true))
	}
	return b, nil
}

// translate gives the errors of package xdp the sentinels that cross the wire.
func translate(err error) error {
	for from, to := range map[error]error{
		xdp.ErrInUse: dataplane.ErrInUse, xdp.ErrPermission: dataplane.ErrPermission,
		xdp.ErrFull: dataplane.ErrFull, xdp.ErrNotFound: dataplane.ErrNotFound,
	} {
		if errors.Is(err, from) {
			return fmt.Errorf("%w: %w", to, err)
		}
	}
	return err
}

func (b *xdpBackend) Name() string { return "xdp" }

// owner is what the counter is pinned under. It is the flow's identity, not
// its name alone: a name that comes back with another match is another counter. The
// identity can be longer than the pins hold, so it is there as a hash; the name keeps two flows apart.
func owner(f flow.Flow) string {
	sum := sha256.Sum256([]byte(identity(f)))
	return f.Name + " " + hex.EncodeToString(sum[:8])
}

func (b *xdpBackend) Install(_ context.Context, flows []Placed) (_ []Installed, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var fresh []*xdpFlow
	var added []xdp.Rule
	defer func() {
		if err == nil {
			return
		}
		err = errors.Join(err, b.drop(added))
		for _, x := range fresh {
			err = errors.Join(err, b.rules.FreeCounter(x.counter.ID))
		}
	}()
	news := make(map[string]*xdpFlow, len(flows))
	for _, f := range flows {
		x := &xdpFlow{owner: owner(f.Flow)}
		if x.counter, err = b.rules.AllocCounter(x.owner); err != nil {
			return nil, fmt.Errorf("flow %q: allocating a counter: %w", f.Name, translate(err))
		}
		if !x.counter.Adopted {
			fresh = append(fresh, x)
		}
		if x.rules, err = compile(f, x.counter.ID, b.rules.Port); err != nil {
			return nil, fmt.Errorf("flow %q: compiling: %w", f.Name, translate(err))
		}
		for _, r := range x.rules {
			if !b.there[r] {
				b.there[r] = true
				added = append(added, r)
			}
		}
		news[f.Name] = x
	}
	if err := b.rules.Add(added...); err != nil {
		for _, r := range added {
			delete(b.there, r)
		}
		added = nil
		return nil, fmt.Errorf("adding rules: %w", translate(err))
	}
	if err := b.attach(flows); err != nil {
		return nil, err
	}
	out := make([]Installed, len(flows))
	for i, f := range flows {
		x := news[f.Name]
		b.flows[f.Name] = x
		out[i] = Installed{ID: x.counter.ID, Cookie: x.counter.Cookie, Basis: "l2", Source: b.source(f.Flow)}
	}
	return out, nil
}

// drop takes rules out of the tables.
func (b *xdpBackend) drop(rules []xdp.Rule) error {
	if len(rules) == 0 {
		return nil
	}
	if err := b.rules.Remove(rules...); err != nil {
		return fmt.Errorf("removing rules: %w", err)
	}
	for _, r := range rules {
		delete(b.there, r)
	}
	return nil
}

func (b *xdpBackend) Remove(_ context.Context, flows []Placed) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	var rules []xdp.Rule
	var counters []uint32
	for _, f := range flows {
		x, ok := b.flows[f.Name]
		if !ok {
			continue
		}
		delete(b.flows, f.Name)
		for _, r := range x.rules {
			if b.there[r] {
				rules = append(rules, r)
			}
		}
		counters = append(counters, x.counter.ID)
	}
	if err := b.drop(rules); err != nil {
		return err
	}
	return b.free(counters)
}

func (b *xdpBackend) free(counters []uint32) error {
	var errs []error
	for _, id := range counters {
		if err := b.rules.FreeCounter(id); err != nil {
			errs = append(errs, fmt.Errorf("freeing counter %d: %w", id, err))
		}
	}
	return errors.Join(errs...)
}

// Settle removes rules, counters and attachments of an earlier process that
// no flow and no interface of this one asked for.
func (b *xdpBackend) Settle(context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.settled = true
	wanted := make(map[uint32]bool)
	keep := make(map[xdp.Rule]bool)
	for _, x := range b.flows {
		wanted[x.counter.ID] = true
		for _, r := range x.rules {
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
	return nil
}

func (b *xdpBackend) Read(ids []uint32, dst []Pair) error { return b.rules.Read(ids, dst) }

// source says where a flow is counted: on the interfaces that it asks for and that are there.
func (b *xdpBackend) source(f flow.Flow) dataplane.Source {
	hook := xdp.HookIngress
	if f.Direction == flow.Egress {
		hook = xdp.HookEgress
	}
	var devices, modes []string
	for _, a := range b.rules.Attachments() {
		if a.Hook == hook && (f.Interface == "" || f.Interface == a.Interface) {
			devices, modes = append(devices, a.Interface), append(modes, a.Mode)
		}
	}
	return dataplane.Source{Backend: "xdp", Device: strings.Join(devices, ","), Mode: strings.Join(modes, ",")}
}

func (b *xdpBackend) Source(f Placed) dataplane.Source {
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
	if keep {
		return b.rules.Close()
	}
	return b.rules.Destroy()
}
