package xdp

import (
	"log/slog"
	"os"
	"sync"

	"github.com/flowtally/flowtally/internal/kernel"
)

// Datapath owns everything in the kernel: rules, counters, programs, their hooks, and the pins of all these. All interfaces
// share the rules and the counters.
//
// A Datapath is safe for concurrent use. Changes wait for one another. Reads wait only for Close, and for a moment for KeepBytes.
type Datapath struct {
	// Lock order: changes, then mu, then reads. The locks of sets (sets.go) come behind mu.
	//
	// changes is held for the whole of a change of rules, even while outside has unlocked mu to build trees or to fill sets. In that time
	// hooks can be attached, but no other change can start.
	changes sync.Mutex
	mu      sync.Mutex   // guards all other fields except values and the elements of sets
	reads   sync.RWMutex // guards values. Reads share it. Close and KeepBytes lock it exclusively.

	log       *slog.Logger
	kernel    kernel.Kernel // Options.Kernel
	dir       string        // Options.PinDir
	lock      *os.File      // the locked directory of the pins; nil without pins
	worstCost int           // Options.WorstCost

	// madePins is set if Open found no pins and made them. If Open fails afterwards, it removes them.
	madePins bool

	// otherBuild is set while programs of another build may be attached. Open exchanges them. If it fails, it detaches them.
	otherBuild bool

	// Memory shared with programs, and this process's view of it.
	g       geometry
	maps    *maps
	meta    *meta
	ledger  *ledger
	pool    *counterPool
	tables  *tables
	sets    sets
	values  values
	adopted map[uint32]bool // counters found by Open

	// epochErr is the error of raiseEpoch. LiveMap returns it, because a reader could not tell a new owner of a slot.
	epochErr error

	// The programs and their hooks.
	grace          *grace
	loader         *loader
	constants      constants // of the attached programs
	sharedPrograms programs  // of these constants
	named          namedPorts
	hooks          map[hookKey]*hook
	loads          uint64 // see Stats.Programs
	insns          uint32 // see Stats.Insns

	earlyKinds []string // Options.Early
	holders    holders

	closed bool // read under mu, reads or sets.life, written under all of them

	// For tests.
	onStep  func(name string) // called at each step of a move; may be nil
	hasSCTP func() bool       // the function HasSCTP
}

// enter locks mu for a method. The caller must unlock it. If the datapath is closed, enter returns ErrClosed and mu is unlocked.
func (dp *Datapath) enter() error {
	dp.mu.Lock()
	if dp.closed {
		dp.mu.Unlock()
		return ErrClosed
	}
	return nil
}

// enterChanges locks changes and mu for a method that changes or lists the rules. The caller must call leaveChanges, unless the
// datapath is closed.
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

// outside runs fn without mu, because fn takes long. fn may use the trees, or the sets if the caller holds sets.life, and nothing
// else. The caller holds changes, so no other goroutine uses the trees or closes the datapath in the meantime.
func (dp *Datapath) outside(fn func()) {
	dp.mu.Unlock()
	defer dp.mu.Lock()
	fn()
}

// Stats are figures about the tables and the programs.
type Stats struct {
	Rules       int
	MaxRules    int
	Tuples      int // distinct masks
	Hashed      int // masks in the hash table; rules of other masks are in trees
	Built       int // how often all trees were built
	Counters    int // allocated
	MaxCounters int
	Programs    uint64 // how often a program was loaded
	Insns       uint32 // processed by the verifier for the last program
}

// Stats returns current figures.
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

// Cost returns the work of classifying a packet with the current rules.
func (dp *Datapath) Cost() Cost {
	if dp.enterChanges() != nil {
		return Cost{}
	}
	defer dp.leaveChanges()

	return dp.tables.cost()
}
