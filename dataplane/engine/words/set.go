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
	// QueuePairs of the instance, which use the device segment too.
	QueuePairs []dataplane.QueuePair
	Logger     *slog.Logger
	Mirror     Mirror
	// Entry finds or makes the mirror's entry of a counter, and returns its handle, its continuity and its total.
	Entry func(shm.Entry) (shm.Handle, shm.Continuity, error)
	// Remove removes a counter from the mirror.
	Remove func(shm.Handle) error
	// SetSource makes the poller read a counter from the set.
	SetSource func(h shm.Handle, s backend.Counters, id uint32, base backend.Pair)
	// Publish sends an event to the receivers of the instance.
	Publish func(dataplane.Event)
	// CoolDown is how long abandoned words rest. 0 means 1 s.
	CoolDown time.Duration
}

// Set is the reserved words of an instance.
type Set struct {
	opts  Options
	slots int // of a device segment that the set makes

	mu        sync.Mutex
	byName    map[string]*reservation
	closed    bool
	socket    *live.Socket // nil: nothing is reserved yet
	socketErr error        // of the last socket.Keep

	// byID has the reservations by their ids; nil: a free id. The poller reads it without a lock.
	byID atomic.Pointer[[]*reservation]

	serving sync.WaitGroup
	clients map[*client]bool
	turns   uint64      // clients that came
	unread  live.Unread // replies with a descriptor that no client has received

	// totalRead is set by tests alone. withdraw calls it between reading a total and keeping it.
	totalRead func(*reservation)
}

// reservation is the reserved words of one counter.
type reservation struct {
	name       string
	id         uint32
	handle     shm.Handle
	continuity shm.Continuity

	// lease is of the program that took the words last; nil: none took them since they were free.
	lease atomic.Pointer[lease]
	last  backend.LastSample // of words that were given back; the total before the first program

	// sampling is held while words are read and their total is kept: no poll publishes more than withdraw keeps.
	sampling sync.Mutex
	polled   backend.LastSample // by the poller, which alone stores it
	held     atomic.Bool        // a program has the words

	// Guarded by Set.mu.
	state dataplane.WordsState
	since time.Time
	file  *shmwords.File
	taker *client // the program that has the words; nil: none

	// backwards: the program that has the words has written a smaller number, or one above their limit.
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

// Reserve makes the counter of a name, whose words a program can take from then on. It is called with the lock of
// control calls held, as Release is.
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

// giveID gives a reservation the first free id. The poller may read the list of before meanwhile, so the list is copied.
// giveID is called with mu held.
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

// room returns an error if no more words can be reserved.
func (s *Set) room() error {
	if len(s.byName) >= dataplane.MostWords {
		return fmt.Errorf("%d are reserved, the most of an instance: release some: %w", dataplane.MostWords, dataplane.ErrFull)
	}
	return nil
}

// Release ends a reservation: the counter is removed. A program that has the words keeps its memory, which no reader
// reads from then on.
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

// List returns the reserved words, ordered by name.
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

// reserved describes a reservation. It is called with mu held.
func (r *reservation) reserved() dataplane.ReservedWords {
	return dataplane.ReservedWords{
		Name:    r.name,
		Counter: r.handle,
		State:   r.state,
		Since:   r.since,
	}
}

// Keep makes the socket anew where it has lost its name, and continues totals that went backwards. It is for one call in
// a second or so, with the lock of control calls held, as Close is.
func (s *Set) Keep() {
	s.mu.Lock()
	socket := s.socket
	for _, r := range s.byName {
		s.continueTotal(r)
	}
	s.mu.Unlock()

	err := socket.Keep() // it waits for accept, which takes mu
	s.mu.Lock()
	s.socketErr = err
	s.mu.Unlock()
}

// Close ends the socket and the connections of the programs. The counters can still be read. Idempotent.
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

	err := socket.Close() // its goroutine may wait for mu
	s.serving.Wait()
	s.unread.Close()
	for _, r := range s.byName {
		if r.file != nil {
			r.file.Close() // the words stay mapped
		}
	}
	return err
}
