package words

import (
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/engine/live"
	"github.com/flowtally/flowtally/dataplane/engine/queuepair"
	"github.com/flowtally/flowtally/shm"
	shmwords "github.com/flowtally/flowtally/shm/words"
)

// Mirror is the part of shm.Writer that reserved words use.
type Mirror interface {
	SetSource(h shm.Handle, source, basis string) error
	SetFlags(h shm.Handle, valid, stale, ambiguous bool) error
	SetContinuity(h shm.Handle, c shm.Continuity) error
	DeviceSegment(slots int) (*shm.DeviceSegment, error)
	SetDevice(h shm.Handle, s *shm.DeviceSlot, comp, errs, limit uint64) error
	ClearDevice(h shm.Handle) error
}

// Options of a Set.
type Options struct {
	Path  string      // of the mirror
	Mode  fs.FileMode // of the socket; 0: 0600, or 0660 with a group
	Group string      // of the socket, by name or number; empty: the process's own
	// QueuePairs are those of the instance. They share the device segment, so the Set must make it large enough for both.
	QueuePairs []dataplane.QueuePair
	Logger     *slog.Logger
	Mirror     Mirror
	// Entry finds or makes the mirror's entry of a counter, and returns its handle, its continuity and its total.
	Entry func(shm.Entry) (shm.Handle, shm.Continuity, error)
	// Remove removes a counter from the mirror.
	Remove func(shm.Handle) error
	// SetSource makes the poller read a counter from the Set.
	SetSource func(h shm.Handle, s backend.Counters, id uint32, base backend.Pair)
	// Publish sends an event to the receivers of the instance.
	Publish func(dataplane.Event)
	// CoolDown is the time before another program can take abandoned words: a device of the last program may write until the
	// kernel has destroyed its objects. 0 means 1 s.
	CoolDown time.Duration
}

// Set is all reserved words of an instance. Lock order: the lock of control calls, mu, reservation.sampling.
type Set struct {
	opts  Options
	slots int // the size of the device segment, if the Set makes it

	mu        sync.Mutex
	byName    map[string]*reservation
	closed    bool
	socket    *live.Socket // nil: nothing is reserved yet
	socketErr error        // of the last socket.Keep

	// byID maps ids to reservations; nil is a free id. The poller reads it without a lock, so it is copied for each change.
	byID atomic.Pointer[[]*reservation]

	serving sync.WaitGroup
	clients map[*client]bool
	turns   uint64      // the number of clients so far
	unread  live.Unread // replies with a descriptor, not received yet

	// totalRead is a hook of tests. keepTotal calls it between reading a total and storing it.
	totalRead func(*reservation)
}

// reservation is one counter with reserved words.
type reservation struct {
	name       string
	id         uint32
	handle     shm.Handle
	continuity shm.Continuity

	// lease is that of the last program; nil if its words were returned or no program has taken any.
	lease atomic.Pointer[lease]
	last  backend.LastSample // the total without a lease

	// sampling is locked while the poller reads the words, and while withdraw reads and stores their last total. So no poll
	// publishes more than that total.
	sampling sync.Mutex
	polled   backend.LastSample // the last sample; only the poller stores it
	held     atomic.Bool        // a program has the words now

	// Guarded by Set.mu.
	state dataplane.WordsState
	since time.Time
	file  *shmwords.File
	taker *client // the program with the words; nil: none

	// backwards is true if this program has written a smaller number, or one above the limit.
	backwards bool
}

// New returns a set without words.
func New(o Options) *Set {
	if o.CoolDown == 0 {
		o.CoolDown = time.Second
	}
	if o.Mode == 0 {
		o.Mode = 0o600
		if o.Group != "" {
			o.Mode = 0o660
		}
	}

	s := &Set{
		opts:    o,
		slots:   2 * dataplane.MostWords,
		byName:  make(map[string]*reservation),
		clients: make(map[*client]bool),
	}
	for _, q := range o.QueuePairs {
		s.slots += queuepair.SlotsPerCounter * len(q.Counters)
	}
	s.byID.Store(new([]*reservation))
	return s
}

// Reserve makes a counter of that name, and programs can take its words from then on. The caller must hold the lock of control
// calls, for Reserve as for Release.
func (s *Set) Reserve(name string) (out dataplane.ReservedWords, err error) {
	fail := func(err error) (dataplane.ReservedWords, error) {
		return dataplane.ReservedWords{}, fmt.Errorf("reserving words %q: %w", name, err)
	}
	if s.Has(name) {
		return fail(fmt.Errorf("%w; release them first or choose another name", dataplane.ErrExists))
	}
	if err := s.listen(); err != nil {
		return fail(err)
	}
	if err := s.room(); err != nil {
		return fail(err)
	}

	r := &reservation{name: name, state: dataplane.WordsFree, since: time.Now()}
	if r.handle, r.continuity, err = s.opts.Entry(entryOf(name)); err != nil {
		return fail(err)
	}
	if base := (backend.Pair{Packets: r.continuity.BasePackets, Bytes: r.continuity.BaseBytes}); base != (backend.Pair{}) {
		r.last.Store(base, shm.Now())
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	s.giveID(r)
	s.byName[name] = r
	s.show(r)
	s.opts.SetSource(r.handle, s, r.id, backend.Pair{})
	return r.reserved(), nil
}

// giveID gives a reservation the first free id, in a copy of the list, because the poller may be reading the old one. The caller
// holds mu.
func (s *Set) giveID(r *reservation) {
	all := slices.Clone(*s.byID.Load())
	free := slices.Index(all, nil)
	if free < 0 {
		free = len(all)
		all = append(all, nil)
	}
	r.id = uint32(free)
	all[free] = r
	s.byID.Store(&all)
}

// room returns an error if the instance has the highest number of reserved words already.
func (s *Set) room() error {
	if len(s.byName) >= dataplane.MostWords {
		return fmt.Errorf("%d are reserved, the most of an instance: release some: %w", dataplane.MostWords, dataplane.ErrFull)
	}
	return nil
}

// Release ends a reservation, and removes the counter. If a program has the words, it loses its connection and keeps its memory,
// which nobody reads any more.
func (s *Set) Release(name string) error {
	s.mu.Lock()
	r := s.byName[name]
	if r == nil {
		s.mu.Unlock()
		return fmt.Errorf("releasing words %q: %w", name, dataplane.ErrNotFound)
	}

	delete(s.byName, name)
	all := slices.Clone(*s.byID.Load())
	all[r.id] = nil
	s.byID.Store(&all)
	s.withdraw(r)
	if r.taker != nil {
		r.taker.end()
		r.taker = nil
	}
	s.mu.Unlock()

	if err := s.opts.Remove(r.handle); err != nil {
		return fmt.Errorf("releasing words %q: %w", name, err)
	}
	return nil
}

// Has reports whether words of that name are reserved.
func (s *Set) Has(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.byName[name] != nil
}

// List returns the reserved words, sorted by name.
func (s *Set) List() []dataplane.ReservedWords {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]dataplane.ReservedWords, 0, len(s.byName))
	for _, r := range s.byName {
		out = append(out, r.reserved())
	}
	slices.SortFunc(out, func(a, b dataplane.ReservedWords) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// reserved describes a reservation. The caller holds mu.
func (r *reservation) reserved() dataplane.ReservedWords {
	return dataplane.ReservedWords{
		Name:    r.name,
		Counter: r.handle,
		State:   r.state,
		Since:   r.since,
	}
}

// Keep makes the socket anew if another process has removed its name, and makes totals continue whose words went backwards. Call
// it about once a second, with the lock of control calls held, like Close.
func (s *Set) Keep() {
	s.mu.Lock()
	socket := s.socket
	for _, r := range s.byName {
		s.continueTotal(r)
	}
	s.mu.Unlock()

	err := socket.Keep() // without mu: it waits for accept, which locks mu
	s.mu.Lock()
	s.socketErr = err
	s.mu.Unlock()
}

// Close closes the socket and the connections of all programs. The poller can still read the counters. Idempotent.
func (s *Set) Close() error {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	s.closed = true
	for c := range s.clients {
		c.end()
	}
	socket := s.socket
	s.socket = nil
	s.mu.Unlock()

	err := socket.Close() // without mu: it waits for a goroutine that may wait for mu
	s.serving.Wait()
	s.unread.Close()
	for _, r := range s.byName {
		if r.file != nil {
			r.file.Close() // the words stay mapped
		}
	}
	return err
}
