// Package words keeps the reserved words of an instance: counters that programs of other owners feed, by their own RDMA
// devices or by themselves. Each has two words in a file of its own, which the socket NAME.words hands out. A program
// can spoil the words that it has, and nothing else.
//
// A program has words for as long as its connection to the socket lives. When that ends the last values stay, and the
// next program gets a new file: a device, or a process that kept the old file, may still write there. docs/embedding.md
// describes it for programs, docs/mirror-format.md for authors of clients.
package words

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/engine/live"
	"github.com/flowtally/flowtally/dataplane/engine/queuepair"
	"github.com/flowtally/flowtally/dataplane/flow"
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

	mu     sync.Mutex
	byName map[string]*reservation
	closed bool
	socket *live.Socket // nil: nothing is reserved yet
	kept   error        // of the last socket.Keep
	// byID has the reservations by their ids; nil: a free id. The poller reads it without a lock.
	byID    atomic.Pointer[[]*reservation]
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

	// taken has the words of the program that took them last; nil: none took them since they were free.
	taken atomic.Pointer[taking]
	last  backend.LastSample // of words that were given back; the total before the first program
	// sampling is held while words are read and their total is kept: no poll publishes more than withdraw keeps.
	sampling sync.Mutex
	polled   backend.LastSample // by the poller, which alone stores it
	held     atomic.Bool        // a program has the words

	// Guarded by Set.mu.
	state dataplane.WordsState
	since time.Time
	file  *shmwords.File
	taker *client
	// backwards: the program that has the words has written a smaller number, or one above their limit.
	backwards bool
}

// taking is the words of one program.
type taking struct {
	slot  *shm.DeviceSlot
	asked uint64       // the limit that the program has named
	limit uint64       // the largest number if a word was above asked
	from  backend.Pair // the total when the words were named in the mirror
	// backwards: the program has written a smaller word, or one above limit. The counter keeps its total until Keep
	// continues it from there.
	backwards atomic.Bool
}

// total returns the total that the words show. It is never below was and never below t.from. An error says that the
// program has spoilt the words.
func (t *taking) total(was backend.Pair) (backend.Pair, error) {
	was = backend.Pair{Packets: max(was.Packets, t.from.Packets), Bytes: max(was.Bytes, t.from.Bytes)}
	comp, errs, err := t.slot.Rebase()
	if errors.Is(err, shm.ErrFormat) {
		t.backwards.Store(true)
	}
	if err != nil || t.backwards.Load() {
		return was, errors.Join(err, errBackwards)
	}
	// A device counts less than half of the range between two cycles, so a longer way is a step back.
	if comp-was.Packets > t.limit/2 || comp < was.Packets || errs-was.Bytes > t.limit/2 || errs < was.Bytes {
		t.backwards.Store(true)
		return was, errBackwards
	}
	return backend.Pair{Packets: comp, Bytes: errs}, nil
}

var errBackwards = errors.New("a word went backwards, or above its limit")

var _ backend.TimedCounters = (*Set)(nil)

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
	s := &Set{opts: o, slots: 2 * dataplane.MaxWords, byName: make(map[string]*reservation), clients: make(map[*client]bool)}
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
	all := slices.Clone(*s.byID.Load())
	if free := slices.Index(all, nil); free >= 0 {
		r.id, all[free] = uint32(free), r
	} else {
		r.id, all = uint32(len(all)), append(all, r)
	}
	s.byID.Store(&all)
	s.byName[name] = r
	s.show(r)
	s.opts.SetSource(r.handle, s, r.id, backend.Pair{})
	return r.reserved(), nil
}

// room returns an error if no more words can be reserved.
func (s *Set) room() error {
	if len(s.byName) >= dataplane.MaxWords {
		return fmt.Errorf("%d are reserved, the most of an instance: release some: %w", dataplane.MaxWords, dataplane.ErrFull)
	}
	return nil
}

// entryOf returns the mirror's entry of reserved words.
func entryOf(name string) shm.Entry {
	return shm.Entry{Name: name, Kind: shm.KindCompletion, Unit: "completions", Text: "reserved words"}
}

// basis names the second value.
const basis = "errors"

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

// withdraw takes the words away from the counter, whose total stays. It counts a discontinuity and returns true if
// operations may have ended uncounted: the program has spoilt the words, or did not give them back. It is called with mu
// held.
func (s *Set) withdraw(r *reservation) (uncounted bool) {
	if t := r.taken.Load(); t != nil {
		r.sampling.Lock()
		was, at := r.polled.Load()
		total, err := t.total(was)
		if err == nil {
			at = shm.Now()
		}
		if s.totalRead != nil {
			s.totalRead(r)
		}
		if at != 0 {
			r.last.Store(total, at)
		}
		r.taken.Store(nil)
		r.sampling.Unlock()
		t.slot.Free()
		if uncounted = err != nil || r.state == dataplane.WordsAbandoned; uncounted {
			r.continuity.Discontinuities++
		}
	}
	if r.file != nil {
		r.file.Close()
		r.file = nil
	}
	return uncounted
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

func (r *reservation) reserved() dataplane.ReservedWords {
	return dataplane.ReservedWords{Name: r.name, Counter: r.handle, State: r.state, Since: r.since}
}

// source returns the source of the counter.
func (r *reservation) source() dataplane.Source {
	mode := map[dataplane.WordsState]dataplane.Mode{
		dataplane.WordsFree: dataplane.ModeWordsFree, dataplane.WordsTaken: dataplane.ModeWords, dataplane.WordsAbandoned: dataplane.ModeWordsAbandoned,
	}[r.state]
	return dataplane.Source{Backend: flow.RDMA, Devices: []dataplane.Device{{Backend: flow.RDMA, Name: "own", Mode: mode}}}
}

// show writes the state of a reservation to the mirror. It is called with mu held.
func (s *Set) show(r *reservation) {
	err := errors.Join(
		s.opts.Mirror.SetSource(r.handle, r.source().String(), basis),
		s.opts.Mirror.SetFlags(r.handle, r.state == dataplane.WordsTaken, r.state != dataplane.WordsTaken, false),
		s.opts.Mirror.SetContinuity(r.handle, r.continuity))
	if err != nil {
		s.opts.Logger.Error("showing the state of reserved words in the mirror", "counter", r.name, "err", err)
	}
}

// setState changes the state of a reservation, in the mirror and by an event. unknown: operations may have ended
// uncounted. It is called with mu held.
func (s *Set) setState(r *reservation, state dataplane.WordsState, text string, unknown bool) {
	r.state, r.since, r.backwards = state, time.Now(), false
	r.held.Store(state == dataplane.WordsTaken)
	s.announce(r, text, unknown)
}

// announce shows a reservation and publishes an event of it. unknown: operations may have ended uncounted. It is called
// with mu held.
func (s *Set) announce(r *reservation, text string, unknown bool) {
	s.show(r)
	s.opts.Publish(dataplane.Event{
		Kind: dataplane.SourceChanged, Object: r.name, Text: r.source().String() + ": " + text, Uncounted: dataplane.Uncounted{Unknown: unknown},
	})
}

// Entries returns the mirror's entries of the counters.
func (s *Set) Entries() (out []shm.Entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.byName {
		e := entryOf(r.name)
		e.Handle, e.Continuity, e.Source, e.ByteBasis = r.handle, r.continuity, r.source().String(), basis
		e.Valid, e.Stale = r.state == dataplane.WordsTaken, r.state != dataplane.WordsTaken
		out = append(out, e)
	}
	return out
}

// WriteAgain writes the state of every counter to a mirror that replaced the file before it.
func (s *Set) WriteAgain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.byName {
		s.show(r)
	}
}

// goOn continues the total of words that went backwards or above their limit, with a discontinuity. It is called with mu
// held.
func (s *Set) goOn(r *reservation) {
	t := r.taken.Load()
	if t == nil || !t.backwards.Load() {
		return
	}
	was, _ := r.polled.Load()
	from, _ := t.total(was)
	limit := t.asked
	err := s.opts.Mirror.SetDevice(r.handle, t.slot, from.Packets, from.Bytes, limit)
	if errors.Is(err, shm.ErrInvalid) { // a word is above it, and counts up to the largest number
		limit = math.MaxUint64
		err = s.opts.Mirror.SetDevice(r.handle, t.slot, from.Packets, from.Bytes, limit)
	}
	if err != nil {
		// The next Keep tries again.
		s.opts.Logger.Debug("reserved words went backwards, and their counter stands still", "counter", r.name, "err", err)
		return
	}
	r.backwards = true
	r.continuity.Discontinuities++
	r.taken.Store(&taking{slot: t.slot, asked: t.asked, limit: limit, from: from})
	s.announce(r, "the program has written a smaller number into the words, or one above their limit", true)
}

// Keep makes the socket anew where it has lost its name, and continues totals that went backwards. It is for one call in
// a second or so, with the lock of control calls held, as Close is.
func (s *Set) Keep() {
	s.mu.Lock()
	socket := s.socket
	for _, r := range s.byName {
		s.goOn(r)
	}
	s.mu.Unlock()
	err := socket.Keep() // it waits for accept, which takes mu
	s.mu.Lock()
	s.kept = err
	s.mu.Unlock()
}

// Conditions lists the reserved words whose programs ended or write nonsense, and a socket that programs cannot find.
func (s *Set) Conditions() (out []dataplane.Condition) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.byName {
		switch {
		case r.state == dataplane.WordsAbandoned:
			out = append(out, dataplane.Condition{
				Code: dataplane.CodeWordsAbandoned, Severity: dataplane.Medium, Object: r.name, Since: r.since,
				Text: "the program that had its reserved words ended without giving them back",
				Fix:  "start the program again, or: flowtally queue-pairs release " + r.name,
			})
		case r.backwards:
			out = append(out, dataplane.Condition{
				Code: dataplane.CodeWordsBackwards, Severity: dataplane.Medium, Object: r.name,
				Text: "the program that has its reserved words has written a smaller number there, or one above their limit",
				Fix:  "correct the program, which may only add to the words, and start it again",
			})
		}
	}
	if s.kept != nil {
		out = append(out, dataplane.Condition{
			Code: dataplane.CodeWordsSocket, Severity: dataplane.Medium, Object: shmwords.Path(s.opts.Path),
			Text: fmt.Sprintf("programs cannot take reserved words: making the socket again: %v", s.kept),
			Fix:  "remove the cause that the text names: the socket is made again within a second",
		})
	}
	return out
}

// Name returns "rdma". With Read and ReadTimed it makes a Set the source of its counters.
func (s *Set) Name() string { return "rdma" }

// Read fills dst[i] with the total of counter ids[i].
func (s *Set) Read(ids []uint32, dst []backend.Pair) error {
	var at [1]int64
	for i := range ids {
		if err := s.ReadTimed(ids[i:i+1], dst[i:i+1], at[:]); err != nil {
			return err
		}
	}
	return nil
}

// ReadTimed is Read with the times of the samples. Words that a program has spoilt have no new sample: the value of their
// counter grows old.
func (s *Set) ReadTimed(ids []uint32, dst []backend.Pair, at []int64) error {
	all := *s.byID.Load()
	for i, id := range ids {
		dst[i], at[i] = backend.Pair{}, 0
		if int(id) >= len(all) || all[id] == nil {
			continue
		}
		dst[i], at[i] = all[id].sample()
	}
	return nil
}

// sample returns the total and its time, for the poller.
func (r *reservation) sample() (backend.Pair, int64) {
	r.sampling.Lock()
	defer r.sampling.Unlock()
	t := r.taken.Load()
	if t == nil {
		return r.last.Load()
	}
	was, at := r.polled.Load()
	now, err := t.total(was)
	if err == nil && (now != was || r.held.Load()) {
		at = shm.Now()
		r.polled.Store(now, at)
	}
	return now, at
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
