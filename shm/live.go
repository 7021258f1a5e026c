package shm

import (
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
)

// LiveSlot says where the kernel counts for a counter. The total is the base and the sum of a slot of the map over all
// CPUs. If Map is 0, readers cannot read the counter there.
type LiveSlot struct {
	Map   uint32 // the kernel's number of the map
	Epoch uint32 // low half of the map's epoch: under another one the slot may be another counter's
	Slot  uint32
	// The total of the counter when the slots were 0.
	BasePackets, BaseBytes uint64
}

// Live reads one counter in the memory in which the kernel counts it, with no poller in between. It belongs to one
// goroutine at a time. A copy of it is another Live. Made by Reader.Live; the zero Live must not be used.
type Live struct {
	words  []uint64  // the slots of all CPUs
	at     int       // index of the first CPU's slot
	stride int       // words from one CPU's slots to the next one's
	base   [2]uint64 // packets, bytes

	// The slot serves the counter as long as *state is under and *epoch is of.
	state *uint64 // of the entry
	under uint64
	epoch *uint64 // of the map
	of    uint64

	handle Handle
	r      *Reader
	f      *liveFile // keeps the map mapped
	v      *view     // keeps the mirror mapped
}

// liveFile is a map as a Reader has mapped it.
type liveFile struct {
	m        *mapping
	id       uint32   // the kernel's number of the map
	counters int      // slots of a CPU
	stride   int      // words from one CPU's slots to the next one's
	words    []uint64 // the slots of all CPUs
	epoch    *uint64
}

// liveTries bounds the attempts at one slot. A CPU may stop for long between its two stores, as for an interrupt.
const liveTries = 1 << 12

// maxLiveCounters is the most slots that a map has for one CPU.
const maxLiveCounters = 1 << 20

// Handle returns the handle that the Live was made from.
func (l *Live) Handle() Handle { return l.handle }

// Load returns the counter's total now: packets, and the bytes of exactly those packets on each CPU. The total includes
// each packet that was counted before the call, and is at least every value of the counter that this goroutine has read
// before, from the mirror or by Load. There is no sample time. The total grows as long as the kernel counts, even after
// the death of the writer's process: see Reader.Status.
//
// Load makes no system call, allocates nothing, waits for no process, and like HandleCounter.Load is not guarded. ErrNoLive: the
// counter is counted elsewhere now. ErrGone: it was removed. ErrStale: the mirror was given up. ErrBusy: try again.
func (l *Live) Load() (packets, bytes uint64, err error) {
	words, step := l.words, l.stride
	var p, s uint64
	for at := l.at; at+1 < len(words); at += step {
		second := atomic.LoadUint64(&words[at+1])
		first := atomic.LoadUint64(&words[at])
		if atomic.LoadUint64(&words[at+1]) != second || uint8(first) != uint8(second) {
			return l.load()
		}
		p, s = p+first, s+second
	}
	loadFence() // barrier view-fence
	if atomic.LoadUint64(l.state) != l.under || atomic.LoadUint64(l.epoch) != l.of {
		return l.load()
	}
	runtime.KeepAlive(l)
	bytes = l.base[1] + (s-p)>>8
	return l.base[0] + p, bytes + bytes>>63<<56, nil // below zero if the slots' 56 bits of bytes have wrapped around
}

// load is the slow form of Load: Load has met a slot between its two stores, or the counter's slot or base has changed.
//
//go:noinline
func (l *Live) load() (packets, bytes uint64, err error) {
	defer runtime.KeepAlive(l)
	for range maxTries {
		if err := l.resolve(l.f); err != nil {
			return 0, 0, err
		}
		var p, s uint64
		for at := l.at; at+1 < len(l.words); at += l.stride {
			first, second, ok := loadPair(&l.words[at], &l.words[at+1])
			if !ok {
				return 0, 0, ErrBusy
			}
			p, s = p+first, s+second
		}
		loadFence() // barrier view-fence
		if atomic.LoadUint64(l.state) == l.under && atomic.LoadUint64(l.epoch) == l.of {
			bytes = l.base[1] + (s-p)>>8
			return l.base[0] + p, bytes + bytes>>63<<56, nil
		}
	}
	return 0, 0, ErrBusy
}

// loadPair reads one CPU's slot: packets, and 256 times their bytes plus packets. The kernel stores the first word, then
// the second, and adds at most 255 packets at once.
//
// If the second word is the same before and after the load of the first, the difference of their low bytes is the number
// of packets by which the first is ahead. Where stores become visible in their order, the first word's value before that
// store follows from it. Elsewhere both are loaded again. (Go's atomic loads keep their order on every architecture.)
func loadPair(packets, pair *uint64) (first, second uint64, ok bool) {
	for range liveTries {
		second = atomic.LoadUint64(pair)
		first = atomic.LoadUint64(packets)
		if atomic.LoadUint64(pair) != second {
			continue
		}
		if ahead := uint8(first) - uint8(second); ahead == 0 || storesInOrder {
			return first - uint64(ahead), second, true
		}
	}
	return 0, 0, false
}

// storesInOrder says that stores of one CPU become visible to others in their order.
const storesInOrder = runtime.GOARCH == "amd64" || runtime.GOARCH == "386"

// Live prepares reading a counter in the memory in which the kernel counts it. The first call, and the first one after the
// writer has another map, asks the socket NAME.live beside the mirror for a descriptor. That takes a second at most.
// ErrNoLive: the writer hands out no descriptor (mirror.live_mode), or not to this process, or the counter is counted
// elsewhere, as in hardware. ErrGone: it was removed. ErrStale: the mirror was replaced, open it again.
func (r *Reader) Live(h Handle) (l Live, err error) {
	err = r.guard(func() error {
		l, err = r.findLive(h)
		return err
	})
	if err != nil {
		return Live{}, fmt.Errorf("%s: reading counter %d live: %w", r.path, h.Index, err)
	}
	return l, nil
}

func (r *Reader) findLive(h Handle) (Live, error) {
	p, err := r.v.place(h.Index)
	if err != nil {
		return Live{}, err
	}
	l := Live{
		state:  &p.entry().live,
		handle: h,
		r:      r,
		v:      r.v,
	}

	r.mu.RLock()
	f := r.live
	r.mu.RUnlock()
	for fresh := false; ; fresh = true { // twice at most: with the map at hand, then with the one that the writer has now
		err := l.resolve(f)
		if !errors.Is(err, errOtherMap) || fresh {
			return l, err
		}

		if f, err = dialLive(LivePath(r.path), r.options); err != nil {
			return Live{}, err
		}
		r.mu.Lock()
		r.live = f
		r.mu.Unlock()
	}
}

// errOtherMap: the entry names another map than the one that is mapped.
var errOtherMap = fmt.Errorf("it is counted in another map than the one that this process has: %w", ErrNoLive)

// resolve makes l read the counter's slot in f. errOtherMap: f is another map, or nil.
func (l *Live) resolve(f *liveFile) error {
	p, err := l.v.place(l.handle.Index)
	if err != nil {
		return err
	}
	e := p.entry()
	for range maxTries {
		s, ok := e.readLive()
		if !ok {
			continue
		}
		if !p.live(l.handle) {
			return ErrGone
		}
		if err := l.v.stale(); err != nil {
			return err
		}

		switch {
		case s.slot.Map == 0:
			return fmt.Errorf("the kernel does not count it in memory that can be handed out: %w", ErrNoLive)
		case f == nil || f.id != s.slot.Map:
			return errOtherMap
		case int64(s.slot.Slot) >= int64(f.counters):
			return fmt.Errorf("slot %d of %d: %w", s.slot.Slot, f.counters, ErrFormat)
		}

		// The epoch rises before the kernel counts for another process's counters in this slot.
		of := atomic.LoadUint64(f.epoch)
		if uint32(of) != s.slot.Epoch {
			return fmt.Errorf("another process has taken up the map since: %w", ErrNoLive)
		}

		l.f = f
		l.words = f.words
		l.at = 2 * int(s.slot.Slot)
		l.stride = f.stride
		l.base = [2]uint64{s.slot.BasePackets, s.slot.BaseBytes}
		l.under = s.state
		l.epoch, l.of = f.epoch, of
		return nil
	}
	return ErrBusy
}

// liveState holds the live words of an entry. state is the first of them: the slot, and a sequence number above it, which
// is odd while the words are being changed.
type liveState struct {
	state uint64
	slot  LiveSlot
}

// readLive returns the live words as they stood at one instant. It returns false if they are being changed.
func (e *entryMem) readLive() (liveState, bool) {
	state := atomic.LoadUint64(&e.live) // barrier view-acquire
	mapAndEpoch := atomic.LoadUint64(&e.liveMap)
	packets, bytes := atomic.LoadUint64(&e.liveBase[0]), atomic.LoadUint64(&e.liveBase[1])
	loadFence() // barrier view-words-fence

	slot := LiveSlot{
		Map:         uint32(mapAndEpoch >> 32),
		Epoch:       uint32(mapAndEpoch),
		Slot:        uint32(state),
		BasePackets: packets,
		BaseBytes:   bytes,
	}
	even := state>>32&1 == 0
	return liveState{state, slot}, even && atomic.LoadUint64(&e.live) == state
}
