package xdp

import (
	"log/slog"
	"os"
	"sync"

	"github.com/flowtally/flowtally/internal/kernel"
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

// Stats is the state of the tables.
type Stats struct {
	Rules       int // added
	MaxRules    int
	Tuples      int // distinct masks
	Hashed      int // of them, in the hash table; the rules of the others are in trees
	Built       int // how often all trees were built
	Counters    int // allocated
	MaxCounters int
	Programs    uint64 // how often programs were loaded
	Insns       uint32 // that the verifier processed for the last program
}
