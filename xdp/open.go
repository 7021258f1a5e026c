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
