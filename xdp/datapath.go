package xdp

import (
	"log/slog"
	"os"
	"sync"

	"github.com/flowtally/flowtally/internal/kernel"
)

// Datapath is what an instance has in the kernel: rules, counters, the programs that read the rules and write the counters,
// their hooks, and the pins of all of these. All interfaces share the rules and the counters.
//
// Its methods may be called from any goroutine. Changes wait for one another; reads wait for nothing but Close.
type Datapath struct {
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

// enter locks mu, and returns ErrClosed, with mu free, if the datapath is closed. Otherwise the caller unlocks mu.
func (dp *Datapath) enter() error {
	dp.mu.Lock()
	if dp.closed {
		dp.mu.Unlock()
		return ErrClosed
	}
	return nil
}

// enterChanges is enter for a call that changes or lists the rules: no other change is under way. The caller calls
// leaveChanges.
func (dp *Datapath) enterChanges() error {
	dp.changes.Lock()
	if err := dp.enter(); err != nil {
		dp.changes.Unlock()
		return err
	}
	return nil
}

func (dp *Datapath) leaveChanges() {
	dp.mu.Unlock()
	dp.changes.Unlock()
}

// outside runs fn with mu free, because fn takes long. fn uses nothing but the trees. The caller holds changes: nobody else
// uses the trees meanwhile, and nobody closes the datapath.
func (dp *Datapath) outside(fn func()) {
	dp.mu.Unlock()
	defer dp.mu.Lock()
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
func (dp *Datapath) Stats() Stats {
	if dp.enterChanges() != nil {
		return Stats{}
	}
	defer dp.leaveChanges()

	s := Stats{
		Counters:    len(dp.pool.idByOwner),
		MaxCounters: dp.g.counters,
		Programs:    dp.loads,
		Insns:       dp.insns,
	}
	dp.tables.stats(&s)
	return s
}

// Cost returns what packets touch in the trees and under the hashed masks that are in force.
func (dp *Datapath) Cost() Cost {
	if dp.enterChanges() != nil {
		return Cost{}
	}
	defer dp.leaveChanges()

	return dp.tables.cost()
}
