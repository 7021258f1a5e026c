package xdp

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"

	"github.com/cilium/ebpf/rlimit"

	"github.com/flowtally/flowtally/xdp/tree"
)

// Open makes the maps, or adopts those that a process has left pinned in PinDir, with its rules, counters and programs, which
// have counted on. Pins of larger sizes than requested are accepted.
func Open(o Options) (*RuleSet, error) {
	rs := &RuleSet{
		log:            o.Logger,
		kernel:         o.Kernel,
		dir:            o.PinDir,
		worstCost:      o.WorstCost,
		adopted:        map[uint32]bool{},
		sharedPrograms: programs{},
		hooks:          map[hookKey]*hook{},
		earlyKinds:     o.Early,
		holders:        holders{kernel: o.Kernel},
		hasSCTP:        HasSCTP,
	}
	if rs.log == nil {
		rs.log = slog.New(slog.DiscardHandler)
	}
	if rs.earlyKinds == nil {
		rs.earlyKinds = kindsEarly
	}
	if rs.kernel == nil {
		if err := prepareHost(); err != nil {
			return nil, err
		}
	}

	if err := rs.open(o); err != nil {
		return nil, fmt.Errorf("opening a rule set: %w", rs.undoOpen(err))
	}
	rs.KeepBytes()
	return rs, nil
}

// prepareHost prepares this process for maps.
func prepareHost() error {
	if err := supported(); err != nil {
		return err
	}
	// Kernels before 5.11 charge maps to RLIMIT_MEMLOCK. RemoveMemlock does nothing on later ones.
	if err := rlimit.RemoveMemlock(); err != nil {
		return fmt.Errorf("raising the limit of locked memory: %w", explain(err))
	}
	return nil
}

// undoOpen closes what a failed Open has opened. Pins that it has made go. Programs of this build that an earlier process
// has left count on; those of another build are taken off, because nobody knows what they do to a packet. undoOpen returns
// err, with what else went wrong.
func (rs *RuleSet) undoOpen(err error) error {
	if rs.madePins {
		rs.end(true)
		return err
	}
	if rs.otherBuild {
		n, evicted := evict(rs.lock, rs.dir)
		if n > 0 {
			err = fmt.Errorf("%w; %d programs of another build were taken off their hooks", err, n)
		}
		err = errors.Join(err, evicted)
	}
	rs.release()
	return err
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

	found, err := rs.openMaps(want, o.StayDetached)
	if err != nil {
		return err
	}
	if rs.epochErr = rs.raiseEpoch(); rs.epochErr != nil {
		rs.log.Warn("counters cannot be read live", "error", rs.epochErr)
	}
	if rs.loader, err = newLoader(rs.maps, rs.g); err != nil {
		return err
	}

	if !found {
		if err := rs.readMaps(); err != nil {
			return err
		}
		return rs.reload()
	}

	// Programs may still be in words and entries that the dead process had given up, and readMaps uses them again.
	if err := rs.wait(); err != nil {
		return err
	}
	if err := rs.readMaps(); err != nil {
		return err
	}
	return rs.resume()
}

// openMaps locks the directory of the pins, and adopts the maps in it or makes new ones. found: it has adopted maps.
func (rs *RuleSet) openMaps(want geometry, stayDetached bool) (found bool, err error) {
	if rs.dir == "" {
		return false, rs.createMaps(want)
	}

	if rs.lock, err = rs.lockPins(); err != nil {
		return false, err
	}
	if !stayDetached {
		if err := unpin(rs.lock, detachedPin); err != nil {
			return false, err
		}
	}
	if found, err = rs.adoptMaps(want); found || err != nil {
		return found, err
	}
	rs.madePins = rs.lock != nil
	return false, rs.createMaps(want)
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

// adoptMaps opens the pinned maps of an earlier process, in the layout of this version. found is false if there are none.
// The maps of a process that died while it made them count as none, and adoptMaps removes them.
func (rs *RuleSet) adoptMaps(want geometry) (found bool, err error) {
	m := newMaps()
	g, err := m.adopt(rs.dir, rs.kernel)
	switch {
	case err == nil:
	case errors.Is(err, os.ErrNotExist) && !errors.Is(err, ErrIncompatible), errors.Is(err, errUnfinished):
		m.close()
		return false, unpinAll(rs.lock)
	default:
		rs.otherBuild = errors.Is(err, ErrIncompatible)
		m.close()
		return false, fmt.Errorf("%w; to give up their counts: flowtally clean --pin-dir %s", err, rs.dir)
	}

	rs.otherBuild = metaOf(m.meta.words, g).object() != objectHash()
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

// readMaps builds this process's view of the maps: the counters in use, the ledger, and the rules. It completes a change of
// rules that the earlier process was in.
func (rs *RuleSet) readMaps() error {
	rs.meta = metaOf(rs.maps.meta.words, rs.g)
	rs.ledger = ledgerOf(rs.maps.ledger.words, rs.meta, rs.kernel)

	rs.pool = newCounterPool(rs.meta, rs.g.counters)
	rs.values = rs.g.values(rs.maps.counters.words)
	for _, id := range rs.pool.idByOwner {
		r := rs.meta.counter(id)
		rs.values.base[id] = r.base()
		rs.values.setLeast(id, r.steps())
		rs.adopted[id] = true
	}

	rs.tables = rs.newTables()
	if err := rs.tables.recover(rs.meta.masks()); err != nil {
		return err
	}
	rs.tables.worstCost = rs.worstCost // from here on: rules that exist are never refused
	rs.named.add(rs.tables.rules())
	return nil
}

// newTables makes tables over the maps. They have no rules until recover.
func (rs *RuleSet) newTables() *tables {
	trees := tree.Adopt(rs.maps.tree.words[:rs.g.words], tree.Options{Class: classBits()})
	t := newTables(rs.g, rs.meta, rs.loader.secret, rs.maps.entries.words, rs.maps.slots.words, rs.maps.ranks.words, trees)
	t.log = rs.log
	t.grace = rs.wait
	t.load = rs.reload
	t.hooks = rs.hooks
	t.forest.outside = rs.outside

	// amd64 keeps the loads of one probe in order. Elsewhere a probe could miss an entry that moves without a grace period.
	if runtime.GOARCH != "amd64" {
		t.table.fence = func() { rs.wait() }
	}
	return t
}

// resume takes up the programs that an earlier process has left attached. They stay if they are of this build and find all
// rules; otherwise programs of this process take their places.
func (rs *RuleSet) resume() error {
	rs.mu.Lock()
	defer rs.mu.Unlock()

	rs.adoptHooks()
	rs.adoptSites()
	// Programs may still read rules that recover has removed.
	if err := rs.wait(); err != nil {
		return err
	}

	// The earlier process gave an interface a program with its number before it added rules that name the interface.
	for _, h := range rs.hooks {
		h.numbered = h.component || rs.named.has(h.port)
	}
	need, tuples, ok := rs.meta.loadedFrom(objectHash())
	if ok {
		rs.constants, ok = rs.tables.adopt(need, tuples)
	}
	if !ok {
		return rs.reload()
	}
	rs.log.Info("adopted the programs that count", "hooks", len(rs.hooks))
	return nil
}
