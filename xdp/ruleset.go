package xdp

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/rlimit"

	"github.com/flowtally/flowtally/internal/kernel"
	"github.com/flowtally/flowtally/xdp/tree"
)

// RuleSet is one table of rules and one map of counters, shared by every interface it is attached to. Its methods may
// be called from any goroutine; changes wait for one another, reads wait for nothing but Close.
type RuleSet struct {
	// changes is held over each change of the rules, and taken before mu. A change frees mu while it builds trees: hooks are
	// attached meanwhile.
	changes sync.Mutex
	mu      sync.Mutex // of everything but values
	life    sync.RWMutex
	log     *slog.Logger
	dir     string
	lock    *os.File
	made    bool // the pins are of this Open: it found none
	// stranger: until Open has exchanged them, programs of another build run, or may run.
	stranger bool
	g        geometry
	maps     *maps
	meta     *meta
	ledger   *ledger
	grace    *grace
	load     *loader
	pool     *counterPool
	class    *tables

	constants constants // of the programs that run
	shared    programs  // of constants
	named     ports     // that rules ask for
	hooks     map[hookKey]*hook
	adopted   map[uint32]bool // counters found by Open
	loads     uint64
	insns     uint32

	kernel   kernel.Kernel // Options.Kernel
	early    []string      // Options.Early
	holders  holders
	worst    int // Options.WorstCost
	values   values
	epochErr error             // why the epoch of the counters could not be raised
	closed   bool              // under mu and life
	steps    func(name string) // a test's hook at each step of a move; else nil
	hasSCTP  func() bool       // HasSCTP; tests replace it
}

// enter locks a rule set that is not closed. The caller unlocks mu.
func (rs *RuleSet) enter() error {
	rs.mu.Lock()
	if rs.closed {
		rs.mu.Unlock()
		return ErrClosed
	}
	return nil
}

// enterChanges locks a rule set that is not closed, while no change of its rules is under way. The caller calls leaveChanges.
func (rs *RuleSet) enterChanges() error {
	rs.changes.Lock()
	err := rs.enter()
	if err != nil {
		rs.changes.Unlock()
	}
	return err
}

func (rs *RuleSet) leaveChanges() {
	rs.mu.Unlock()
	rs.changes.Unlock()
}

// outside runs fn, which takes long and uses nothing but the trees, with mu free. Its caller holds changes, so that nobody
// else uses the trees, and the rule set is not closed.
func (rs *RuleSet) outside(fn func()) {
	rs.mu.Unlock()
	defer rs.mu.Lock()
	fn()
}

// Open makes the maps of a rule set, or adopts the maps that a process left pinned in PinDir, with its rules, counters
// and attachments, whose programs have counted on. Pins with larger sizes than requested are accepted.
func Open(o Options) (*RuleSet, error) {
	rs := &RuleSet{
		log:     o.Logger,
		dir:     o.PinDir,
		hooks:   map[hookKey]*hook{},
		adopted: map[uint32]bool{},
		kernel:  o.Kernel,
		holders: holders{kernel: o.Kernel},
		early:   o.Early,
		hasSCTP: HasSCTP,
		shared:  programs{},
		worst:   o.WorstCost,
	}
	if rs.log == nil {
		rs.log = slog.New(slog.DiscardHandler)
	}
	if rs.early == nil {
		rs.early = kindsEarly
	}
	if rs.kernel == nil {
		if err := prepareHost(); err != nil {
			return nil, err
		}
	}
	if err := rs.open(o); err != nil {
		switch {
		case rs.made:
			rs.end(true) // removes the pins that this Open has made
		case rs.stranger:
			n, evicted := evict(rs.lock, rs.dir)
			if n > 0 {
				err = fmt.Errorf("%w; %d programs of another build were taken off their hooks", err, n)
			}
			err = errors.Join(err, evicted)
			rs.release()
		default:
			rs.release()
		}
		return nil, fmt.Errorf("opening a rule set: %w", err)
	}
	rs.KeepBytes()
	return rs, nil
}

// prepareHost prepares this process for maps.
func prepareHost() error {
	if err := supported(); err != nil {
		return err
	}
	// Kernels before 5.11 charge maps to RLIMIT_MEMLOCK; later ones are left alone.
	if err := rlimit.RemoveMemlock(); err != nil {
		return fmt.Errorf("raising the limit of locked memory: %w", explain(err))
	}
	return nil
}

func (rs *RuleSet) open(o Options) error {
	cpus, err := rs.cpus()
	if err != nil {
		return fmt.Errorf("counting CPUs: %w", err)
	}
	want, err := newGeometry(o, cpus)
	if err != nil {
		return err
	}
	if rs.grace, err = newGrace(rs.kernel); err != nil {
		return err
	}
	found := false
	if rs.dir != "" {
		if rs.lock, err = rs.lockPins(); err != nil {
			return err
		}
		if !o.StayDetached {
			if err := unpin(rs.lock, detachedPin); err != nil {
				return err
			}
		}
		if found, err = rs.adoptMaps(want); err != nil {
			return err
		}
	}
	if !found {
		rs.made = rs.lock != nil
		if err := rs.createMaps(want); err != nil {
			return err
		}
	}
	if rs.epochErr = rs.raiseEpoch(); rs.epochErr != nil {
		rs.log.Warn("counters cannot be read live", "error", rs.epochErr)
	}
	if rs.load, err = newLoader(rs.maps, rs.g); err != nil {
		return err
	}
	if found {
		// Programs may still be in words and entries that the dead process had given up.
		if err := rs.wait(); err != nil {
			return err
		}
	}
	if err := rs.build(); err != nil {
		return err
	}
	if found {
		return rs.resume()
	}
	return rs.reload()
}

func (rs *RuleSet) createMaps(g geometry) error {
	rs.g, rs.maps = g, newMaps()
	if err := rs.maps.create(g, rs.kernel); err != nil {
		return err
	}
	metaOf(rs.maps.meta.words, g).format(g)
	if rs.dir == "" {
		return nil
	}
	return rs.maps.pin(rs.dir)
}

// adoptMaps opens pinned maps. It removes the maps of a process that died while it made them.
func (rs *RuleSet) adoptMaps(want geometry) (bool, error) {
	m := newMaps()
	g, err := m.adopt(rs.dir, rs.kernel)
	switch {
	case err == nil:
	case errors.Is(err, os.ErrNotExist) && !errors.Is(err, ErrIncompatible), errors.Is(err, errUnfinished):
		m.close()
		return false, unpinAll(rs.lock)
	default:
		rs.stranger = errors.Is(err, ErrIncompatible)
		m.close()
		return false, fmt.Errorf("%w; to give up their counts: flowtally clean --pin-dir %s", err, rs.dir)
	}
	rs.stranger = metaOf(m.meta.words, g).object() != objectHash()
	if g.rules < want.rules || g.counters < want.counters || g.cpus != want.cpus {
		m.close()
		return false, fmt.Errorf("%w: the pins in %s hold %d rules, %d counters and %d CPUs, wanted are %d, %d and %d; "+
			"to give up their counts: flowtally clean --pin-dir %s", ErrIncompatible, rs.dir, g.rules, g.counters, g.cpus,
			want.rules, want.counters, want.cpus, rs.dir)
	}
	if g.layout != metaLayout {
		err := rs.convert(m.meta, g)
		m.close()
		if err != nil {
			return false, fmt.Errorf("converting the pins in %s from layout %d: %w", rs.dir, g.layout, err)
		}
		rs.log.Info("converted the pins of an earlier version", "dir", rs.dir, "layout", g.layout)
		m = newMaps()
		if g, err = m.adopt(rs.dir, rs.kernel); err != nil {
			m.close()
			return false, err
		}
	}
	if m.ledger.m == nil {
		if err := m.addLedger(rs.dir, rs.kernel); err != nil {
			m.close()
			return false, err
		}
	}
	rs.g, rs.maps = g, m
	return true, nil
}

// build makes the model of the maps.
func (rs *RuleSet) build() error {
	rs.meta = metaOf(rs.maps.meta.words, rs.g)
	rs.ledger = ledgerOf(rs.maps.ledger.words, rs.meta, rs.kernel)
	rs.pool = newCounterPool(rs.meta, rs.g.counters)
	rs.values = rs.g.values(rs.maps.counters.words)
	for _, id := range rs.pool.owners {
		rs.values.base[id] = rs.meta.counter(id).base()
		rs.values.setLeast(id, rs.meta.counter(id).steps())
		rs.adopted[id] = true
	}
	slots := rs.maps.slots.words
	set := tree.Adopt(rs.maps.tree.words[:rs.g.words], tree.Options{Class: classBits()})
	t := newTables(rs.g, rs.meta, rs.load.secret, rs.maps.entries.words, slots, rs.maps.ranks.words, set)
	t.log, t.grace, t.load, t.hooks = rs.log, rs.wait, rs.reload, rs.hooks
	// Loads of one probe stay in order on amd64; elsewhere a moved entry could be missed without a grace period.
	if runtime.GOARCH != "amd64" {
		t.table.fence = func() { rs.wait() }
	}
	rs.class = t
	t.forest.outside = rs.outside
	if err := t.recover(rs.meta.masks()); err != nil {
		return err
	}
	rs.named.add(t.rules())
	t.worstCost = rs.worst
	return nil
}

// resume takes up the programs that a process left attached. They stay as they are when they are of this version and
// serve the rules; otherwise programs of this process take their place.
func (rs *RuleSet) resume() error {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rs.adoptHooks()
	rs.adoptSites()
	// Programs may still read rules that the dead process removed.
	if err := rs.wait(); err != nil {
		return err
	}
	for _, h := range rs.hooks { // the earlier process has loaded these before it added the rules
		h.numbered = h.slot || rs.named.has(h.port)
	}
	need, tuples, ok := rs.meta.loadedFrom(objectHash())
	if ok {
		rs.constants, ok = rs.class.adopt(need, tuples)
	}
	if ok {
		rs.log.Info("adopted the programs that count", "hooks", len(rs.hooks))
		return nil
	}
	return rs.reload()
}

// wait for a grace period.
func (rs *RuleSet) wait() error {
	if err := rs.grace.wait(); err != nil {
		return err
	}
	if rs.pool != nil {
		rs.pool.graceful()
	}
	return nil
}

// reload exchanges the programs of all hooks. A program that does not load leaves all as they were; a link that does
// not take its program is reported and lost, the others go on.
func (rs *RuleSet) reload() error {
	if err := rs.class.check(); err != nil {
		rs.log.Error("checking the trees", "error", err)
		return err
	}
	c := rs.class.constants()
	fresh := map[*hook]*ebpf.Program{}
	shared := programs{}
	for _, h := range rs.hooks {
		p, err := rs.programFor(c, shared, h.site)
		if err != nil {
			for _, p := range fresh {
				p.Close()
			}
			shared.close()
			return err
		}
		fresh[h] = p
	}
	rs.meta.clearLoaded()
	rs.shared.close()
	rs.shared = shared
	for h, p := range fresh {
		rs.give(h, p)
	}
	if len(fresh) > 0 {
		if err := rs.wait(); err != nil {
			// The new programs run and stay. If the wait cannot confirm a grace period, a pause must do.
			rs.log.Error("waiting for the programs that were exchanged", "error", err)
			time.Sleep(time.Second)
		}
	}
	rs.class.finishLoad()
	rs.constants = c
	rs.meta.setLoaded(objectHash(), c)
	return nil
}

// give exchanges the program of a hook. A link that does not take it is reported and lost. Why a link is not attached any
// more, the next Look finds out.
func (rs *RuleSet) give(h *hook, p *ebpf.Program) {
	if err := h.update(p); err != nil {
		if !h.alive() {
			p.Close()
			return
		}
		rs.log.Error("exchanging a program", "interface", h.name, "hook", h.hook, "error", err)
		p.Close()
		rs.ledger.begin(h.hookKey)
		rs.drop(h)
		return
	}
	h.numbered = h.slot || rs.named.has(h.port)
}

// Cost returns what packets touch in the trees and under the hashed masks that are in force.
func (rs *RuleSet) Cost() Cost {
	if rs.enterChanges() != nil {
		return Cost{}
	}
	defer rs.leaveChanges()
	return rs.class.cost()
}

// Stats says how full the tables are.
func (rs *RuleSet) Stats() Stats {
	if rs.enterChanges() != nil {
		return Stats{}
	}
	defer rs.leaveChanges()
	s := Stats{Counters: len(rs.pool.owners), MaxCounters: rs.g.counters, Programs: rs.loads, Insns: rs.insns}
	rs.class.stats(&s)
	return s
}
