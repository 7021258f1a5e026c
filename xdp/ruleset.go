package xdp

import (
	"log/slog"
	"os"
	"sync"

	"github.com/flowtally/flowtally/internal/kernel"
)

// RuleSet is what an instance has in the kernel: rules, counters, the programs that read the rules and write the counters,
// their hooks, and the pins of all of these. All interfaces share the rules and the counters.
//
// Its methods may be called from any goroutine. Changes wait for one another; reads wait for nothing but Close.
type RuleSet struct {
	// Locks are taken in the order of these fields.
	//
	// changes is held over each change of the rules. A long one frees mu while it builds trees, so that hooks can be
	// attached meanwhile.
	changes sync.Mutex
	mu      sync.Mutex   // of all other fields, apart from values
	reads   sync.RWMutex // of values: each read shares it, and Close takes it alone

	log       *slog.Logger
	kernel    kernel.Kernel // Options.Kernel
	dir       string        // Options.PinDir
	lock      *os.File      // the locked directory of the pins; nil without pins
	worstCost int           // Options.WorstCost

	// madePins: Open found no pins, and made these. If Open fails, it removes them.
	madePins bool

	// otherBuild: programs of another build may be attached. Open exchanges them, or takes them off if it fails.
	otherBuild bool

	// The memory that is shared with programs, and what is read from it.
	g       geometry
	maps    *maps
	meta    *meta
	ledger  *ledger
	pool    *counterPool
	tables  *tables
	values  values
	adopted map[uint32]bool // counters that Open has found

	// epochErr is the reason why the epoch of the counters could not be raised, so that LiveMap is refused.
	epochErr error

	// The programs and their hooks.
	grace          *grace
	loader         *loader
	constants      constants // of the programs that are attached
	sharedPrograms programs  // of these constants
	named          namedPorts
	hooks          map[hookKey]*hook
	loads          uint64 // see Stats.Programs
	insns          uint32 // see Stats.Insns

	earlyKinds []string // Options.Early
	holders    holders

	closed bool // read under mu or reads, written under both

	// For tests.
	onStep  func(name string) // called at each step of a move; nil otherwise
	hasSCTP func() bool       // the function HasSCTP
}

// enter locks mu, and returns ErrClosed, with mu free, if the rule set is closed. Otherwise the caller unlocks mu.
func (rs *RuleSet) enter() error {
	rs.mu.Lock()
	if rs.closed {
		rs.mu.Unlock()
		return ErrClosed
	}
	return nil
}

// enterChanges is enter for a call that changes or lists the rules: no other change is under way. The caller calls
// leaveChanges.
func (rs *RuleSet) enterChanges() error {
	rs.changes.Lock()
	if err := rs.enter(); err != nil {
		rs.changes.Unlock()
		return err
	}
	return nil
}

func (rs *RuleSet) leaveChanges() {
	rs.mu.Unlock()
	rs.changes.Unlock()
}

// outside runs fn with mu free, because fn takes long. fn uses nothing but the trees. The caller holds changes: nobody else
// uses the trees meanwhile, and nobody closes the rule set.
func (rs *RuleSet) outside(fn func()) {
	rs.mu.Unlock()
	defer rs.mu.Lock()
	fn()
}

// Stats tells how full the tables are.
type Stats struct {
	Rules       int
	MaxRules    int
	Tuples      int // distinct masks
	Hashed      int // masks in the hash table; the rules of the others are in trees
	Built       int // how often all trees were built
	Counters    int // allocated
	MaxCounters int
	Programs    uint64 // how often a program was loaded
	Insns       uint32 // instructions that the verifier processed for the last program
}

// Stats returns how full the tables are.
func (rs *RuleSet) Stats() Stats {
	if rs.enterChanges() != nil {
		return Stats{}
	}
	defer rs.leaveChanges()

	s := Stats{
		Counters:    len(rs.pool.idByOwner),
		MaxCounters: rs.g.counters,
		Programs:    rs.loads,
		Insns:       rs.insns,
	}
	rs.tables.stats(&s)
	return s
}

// Cost returns what packets touch in the trees and under the hashed masks that are in force.
func (rs *RuleSet) Cost() Cost {
	if rs.enterChanges() != nil {
		return Cost{}
	}
	defer rs.leaveChanges()

	return rs.tables.cost()
}
