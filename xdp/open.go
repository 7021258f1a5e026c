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

// Open makes a datapath without rules and programs. If an earlier process left pins in PinDir, Open adopts its rules, counters and
// programs, which have been counting all the time. The pins may be larger than o asks for.
func Open(o Options) (*Datapath, error) {
	dp := &Datapath{
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
	if dp.log == nil {
		dp.log = slog.New(slog.DiscardHandler)
	}
	if dp.earlyKinds == nil {
		dp.earlyKinds = kindsEarly
	}
	if dp.kernel == nil {
		if err := prepareHost(); err != nil {
			return nil, err
		}
	}

	if err := dp.open(o); err != nil {
		return nil, fmt.Errorf("opening a rule set: %w", dp.undoOpen(err))
	}
	dp.KeepBytes()
	return dp, nil
}

// prepareHost makes sure that this process can create maps.
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

// undoOpen cleans up after a failed Open, and returns err joined with its own errors. It removes pins made by this Open. Adopted
// programs of this build keep counting. Those of another build are detached, because we do not know what they do to packets.
func (dp *Datapath) undoOpen(err error) error {
	if dp.madePins {
		dp.end(true)
		return err
	}
	if dp.otherBuild {
		n, evicted := evict(dp.lock, dp.dir)
		if n > 0 {
			err = fmt.Errorf("%w; %d programs of another build were taken off their hooks", err, n)
		}
		err = errors.Join(err, evicted)
	}
	dp.release()
	return err
}

func (dp *Datapath) open(o Options) error {
	cpus, err := dp.cpus()
	if err != nil {
		return fmt.Errorf("counting CPUs: %w", err)
	}
	want, err := newGeometry(o, cpus)
	if err != nil {
		return err
	}
	if dp.grace, err = newGrace(dp.kernel); err != nil {
		return err
	}

	found, err := dp.openMaps(want, o.StayDetached)
	if err != nil {
		return err
	}
	if dp.epochErr = dp.raiseEpoch(); dp.epochErr != nil {
		dp.log.Warn("counters cannot be read live", "error", dp.epochErr)
	}
	if found {
		if err := dp.adoptSets(); err != nil {
			return err
		}
	}
	if dp.loader, err = newLoader(dp.maps, dp.g, &dp.sets); err != nil {
		return err
	}

	if !found {
		if err := dp.adoptContents(); err != nil {
			return err
		}
		return dp.reload()
	}

	// adoptContents reuses words and entries that the dead process had retired. Programs may still be reading them.
	if err := dp.wait(); err != nil {
		return err
	}
	if err := dp.adoptContents(); err != nil {
		return err
	}
	return dp.resume()
}

// openMaps locks the directory of the pins. It adopts the maps in it, or makes new ones. found is set if it has adopted maps.
func (dp *Datapath) openMaps(want geometry, stayDetached bool) (found bool, err error) {
	if dp.dir == "" {
		return false, dp.createMaps(want)
	}

	if dp.lock, err = dp.lockPins(); err != nil {
		return false, err
	}
	if !stayDetached {
		if err := unpin(dp.lock, detachedPin); err != nil {
			return false, err
		}
	}
	if found, err = dp.adoptMaps(want); found || err != nil {
		return found, err
	}
	dp.madePins = dp.lock != nil
	return false, dp.createMaps(want)
}

func (dp *Datapath) createMaps(g geometry) error {
	dp.g, dp.maps = g, newMaps()
	if err := dp.maps.create(g, dp.kernel); err != nil {
		return err
	}
	metaOf(dp.maps.meta.words, g).format(g)
	if dp.dir == "" {
		return nil
	}
	return dp.maps.pin(dp.dir)
}

// adoptMaps opens the pinned maps of an earlier process, and converts them to the layout of this version. found is false if there
// are none. If that process died while making them, nothing was counted in them, and adoptMaps removes them.
func (dp *Datapath) adoptMaps(want geometry) (found bool, err error) {
	m := newMaps()
	g, err := m.adopt(dp.dir, dp.kernel)
	switch {
	case err == nil:
	case errors.Is(err, os.ErrNotExist) && !errors.Is(err, ErrIncompatible), errors.Is(err, errUnfinished):
		m.close()
		return false, unpinAll(dp.lock)
	default:
		dp.otherBuild = errors.Is(err, ErrIncompatible)
		m.close()
		return false, fmt.Errorf("%w; to give up their counts: flowtally clean --pin-dir %s", err, dp.dir)
	}

	dp.otherBuild = metaOf(m.meta.words, g).object() != objectHash()
	if g.rules < want.rules || g.counters < want.counters || g.cpus != want.cpus {
		m.close()
		return false, fmt.Errorf("%w: the pins in %s hold %d rules, %d counters and %d CPUs, wanted are %d, %d and %d; "+
			"to give up their counts: flowtally clean --pin-dir %s", ErrIncompatible, dp.dir, g.rules, g.counters, g.cpus,
			want.rules, want.counters, want.cpus, dp.dir)
	}

	if g.layout != metaLayout {
		err := dp.convert(m.meta, g)
		m.close()
		if err != nil {
			return false, fmt.Errorf("converting the pins in %s from layout %d: %w", dp.dir, g.layout, err)
		}
		dp.log.Info("converted the pins of an earlier version", "dir", dp.dir, "layout", g.layout)
		m = newMaps()
		if g, err = m.adopt(dp.dir, dp.kernel); err != nil {
			m.close()
			return false, err
		}
	}
	if m.ledger.m == nil {
		if err := m.addLedger(dp.dir, dp.kernel); err != nil {
			m.close()
			return false, err
		}
	}
	dp.g, dp.maps = g, m
	return true, nil
}

// adoptSets adopts the sets of an earlier process, whose programs ask for them. It removes a memory that the process was filling.
func (dp *Datapath) adoptSets() error {
	if err := unpin(dp.lock, nextMembersPin); err != nil {
		return err
	}
	if err := dp.sets.adopt(dp.dir, dp.kernel); err != nil {
		return fmt.Errorf("%w; to give up their counts: flowtally clean --pin-dir %s", err, dp.dir)
	}
	return nil
}

// adoptContents reads counters, ledger and rules from the maps. If the earlier process died during a change of rules, it completes
// or undoes the change. New maps are empty.
func (dp *Datapath) adoptContents() error {
	dp.meta = metaOf(dp.maps.meta.words, dp.g)
	dp.ledger = ledgerOf(dp.maps.ledger.words, dp.meta, dp.kernel)

	dp.pool = newCounterPool(dp.meta, dp.g.counters)
	dp.values = dp.g.values(dp.maps.counters.words)
	for _, id := range dp.pool.idByOwner {
		r := dp.meta.counter(id)
		dp.values.base[id] = r.base()
		dp.values.setLeast(id, r.steps())
		dp.adopted[id] = true
	}

	dp.tables = dp.newTables()
	if err := dp.tables.recover(dp.meta.masks()); err != nil {
		return err
	}
	dp.tables.worstCost = dp.worstCost // not before recover: adopted rules must not be refused
	rules := dp.tables.rules()
	dp.named.add(rules)
	for i := range rules {
		if err := dp.sets.checkRule(&rules[i]); err != nil { // it would match packets that it must not
			return fmt.Errorf("adopting rule %d of %d: %w: %w; to give up their counts: flowtally clean --pin-dir %s",
				i+1, len(rules), ErrIncompatible, err, dp.dir)
		}
	}
	return nil
}

// newTables makes tables over the maps. They are empty until recover.
func (dp *Datapath) newTables() *tables {
	trees := tree.Adopt(dp.maps.tree.words[:dp.g.words], tree.Options{Class: classBits()})
	t := newTables(dp.g, dp.meta, dp.loader.secret, dp.maps.entries.words, dp.maps.slots.words, dp.maps.ranks.words, trees)
	t.log = dp.log
	t.grace = dp.wait
	t.load = dp.reload
	t.hooks = dp.hooks
	t.forest.outside = dp.outside

	// On amd64 a probe executes its loads in order. On other CPUs it could miss a slot being moved (hashTable.insertFrom), unless
	// a grace period separates the stores.
	if runtime.GOARCH != "amd64" {
		t.table.fence = func() { dp.wait() }
	}
	return t
}

// resume adopts the programs that an earlier process left attached. If they are from another build, or would not find all rules,
// it exchanges them.
func (dp *Datapath) resume() error {
	dp.mu.Lock()
	defer dp.mu.Unlock()

	dp.adoptHooks()
	dp.adoptSites()
	// Programs may still be reading rules that recover has removed.
	if err := dp.wait(); err != nil {
		return err
	}

	// The earlier process loaded a program with the number of an interface before it added rules that name the interface. So
	// the rules tell which programs have a number.
	for _, h := range dp.hooks {
		h.numbered = h.component || dp.named.has(h.port)
	}
	need, tuples, ok := dp.meta.loadedFrom(objectHash())
	if need&needSets != 0 && dp.sets.memory == nil { // somebody has removed the pin of sets that no rule asks for
		ok = false
	}
	if ok {
		dp.constants, ok = dp.tables.adopt(need, tuples)
	}
	if !ok {
		return dp.reload()
	}
	dp.log.Info("adopted the programs that count", "hooks", len(dp.hooks))
	return nil
}
