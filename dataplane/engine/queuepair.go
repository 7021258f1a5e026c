package engine

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/engine/trial"
	"github.com/flowtally/flowtally/ibv"
	"github.com/flowtally/flowtally/shm"
)

// queuePair is a queue pair of the configuration. One goroutine owns it, with a context of
// its own on its device: it makes it, drains it, posts what callers ask for, and makes it
// again after its device was gone. What others want of it they hand to that goroutine (call);
// what they may look at lies in view and in the tallies.
type queuePair struct {
	cfg     dataplane.QueuePair // every default filled in
	set     *queuePairs
	log     *slog.Logger
	tallies []*tally
	feeds   feeding       // which operations the tallies count
	turns   chan struct{} // one token: the callers of post take turns

	requests chan func()
	happened chan occurrence // on the device
	stop     chan struct{}   // closed when the goroutine is to end
	done     chan struct{}   // closed when it has

	// Of the goroutine alone.
	end    *endpoint // nil while the device is gone
	gone   error     // why it is
	peer   dataplane.QueuePairAddress
	totals []backend.Pair // by tally, over every endpoint there was
	job    *job
	batch  uint64 // of the last job
	wc     [wcBatch]ibv.WC
	send   [wrBatch]ibv.SendWR
	recv   [wrBatch]ibv.RecvWR

	outstanding atomic.Int64 // sends

	// marking is held while the mirror is written to, so that what is shown there last is the newest.
	marking sync.Mutex

	mu   sync.Mutex
	view view
}

// view is what others may know of a queue pair.
type view struct {
	made     *endpoint // nil while the device is gone; to be compared, and nothing else
	state    string
	local    dataplane.QueuePairAddress
	peer     dataplane.QueuePairAddress
	source   dataplane.Source
	rejected []dataplane.Rejection
	lost     error  // why its device counts as gone; nil: it is there
	trouble  string // why it does not work; "": it does
	loose    string // why it could not be connected; "": it could, or nobody has tried
	broken   error  // why its source is not the one that it began with
}

const (
	// wcBatch and wrBatch are how many completions are taken off, and work requests
	// posted, by one call.
	wcBatch, wrBatch = 64, 64
	// operations is the number of kinds that completions are counted by: an operation is
	// its place in dataplane.Operations, which is its bit in the op mask of verbs.
	operations = 6
)

// The kinds that have completions of their own.
const (
	opSend      = 0
	opRecv      = 1
	opRDMARead  = 2
	opRDMAWrite = 4
)

// tally is a completion counter of the configuration: completions, and those in error.
type tally struct {
	cfg    dataplane.CompletionCounter
	handle shm.Handle
	cell   backend.LastSample // the total of this process
	past   shm.Continuity     // as the mirror has it; guarded by the queue pair's mu once it runs
}

// ours says that all which is counted was posted here: nothing that the peer begins.
func (t *tally) ours() bool {
	return !slices.ContainsFunc(t.cfg.Operations, func(op dataplane.Operation) bool { return op == dataplane.Recv || op.Remote() })
}

// queuePairs are the queue pairs of an instance, and a source of the plan: counter i is
// that of byID[i].
type queuePairs struct {
	cfg    dataplane.Config
	log    *slog.Logger
	mirror mirror
	tell   func(dataplane.Event)
	guard  *trial.Guard
	closed func() bool  // the instance is
	lib    *ibv.Library // nil: the guard refuses the library
	ns     *backend.Netns
	all    []*queuePair // in the order of the configuration
	byID   []*tally

	idle    time.Duration // the longest pause between two looks at a completion queue
	changed chan struct{} // states, and so conditions, may have changed
	remade  chan *queuePair
	ctx     context.Context // of what runs beside the queue pairs' goroutines
	stop    context.CancelFunc
	workers sync.WaitGroup
}

// mirror is what queue pairs need of shm.Writer while they run.
type mirror interface {
	SetSource(h shm.Handle, source, basis string) error
	SetFlags(h shm.Handle, valid, stale, ambiguous bool) error
	SetContinuity(h shm.Handle, c shm.Continuity) error
	DeviceSegment(slots int) (*shm.DeviceSegment, error)
	SetDevice(h shm.Handle, s *shm.DeviceSlot, comp, errs, limit uint64) error
	ClearDevice(h shm.Handle) error
}

// completionUnit and completionBasis say what the two values of a completion counter are.
const (
	completionUnit  = "completions"
	completionBasis = "errors"
)

// newQueuePairs prepares the queue pairs of the configuration. Nothing is made before start.
func newQueuePairs(cfg dataplane.Config, log *slog.Logger, w mirror, tell func(dataplane.Event)) *queuePairs {
	s := &queuePairs{
		cfg: cfg, log: log, mirror: w, tell: tell,
		idle:    min(max(cmp.Or(cfg.Poll.Period, backend.DefaultPeriod), pauseIdleLeast), pauseIdleMost),
		changed: make(chan struct{}, 1), remade: make(chan *queuePair, len(cfg.QueuePairs)),
	}
	for _, c := range cfg.QueuePairs {
		c = c.WithDefaults()
		c.Receives = max(c.Receives, 0) // -1: none
		q := &queuePair{
			cfg: c, set: s, log: log.With("queue_pair", c.Name),
			turns: make(chan struct{}, 1), requests: make(chan func()), happened: make(chan occurrence, 8),
			stop: make(chan struct{}), done: make(chan struct{}), totals: make([]backend.Pair, len(c.Counters)),
		}
		for op := range q.feeds {
			q.feeds[op] = -1
		}
		for i, k := range c.Counters {
			t := &tally{cfg: k}
			q.tallies, s.byID = append(q.tallies, t), append(s.byID, t)
			for _, op := range k.Operations {
				q.feeds[slices.Index(dataplane.Operations(), op)] = int8(i)
			}
		}
		s.all = append(s.all, q)
	}
	return s
}

// entryOf describes a completion counter to readers of the mirror. Its text is what makes it
// the same counter at the next start, on whatever device, so the device is not in it.
func (q *queuePair) entryOf(t *tally) shm.Entry {
	text := string(q.cfg.Type) + ":"
	for _, op := range t.cfg.Operations {
		text += " " + string(op)
	}
	return shm.Entry{
		Name: t.cfg.Name, Kind: shm.KindCompletion, Unit: completionUnit, Text: text,
		Labels: map[string]string{"queue_pair": q.cfg.Name},
	}
}
