package shm

import (
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
)

// LiveSlot says where the kernel counts for a counter. The total is the base plus the sum over all CPUs of one slot of a map.
// Map 0 means that readers cannot read the counter live.
type LiveSlot struct {
	Map   uint32 // the kernel's number of the map
	Epoch uint32 // low half of the map's epoch; in another epoch the slot may serve another counter
	Slot  uint32
	// The total that the counter had when the slots were 0.
	BasePackets, BaseBytes uint64
}

// Live reads one counter in the memory in which the kernel counts it, with no poller in between. Use a Live from one goroutine
// at a time; a copy is independent. Reader.Live makes one. The zero Live must not be used.
type Live struct {
	words  []uint64  // the slots of all CPUs
	at     int       // index of the first CPU's slot
	stride int       // words from one CPU's slots to the next one's
	base   [2]uint64 // packets, bytes

	// The slot serves the counter as long as *state equals knownState and *epoch equals knownEpoch.
	state      *uint64 // in the entry
	knownState uint64
	epoch      *uint64 // in the map
	knownEpoch uint64

	handle Handle
	r      *Reader
	f      *liveFile // keeps the map mapped
	v      *view     // keeps the mirror mapped
}

// liveFile is a map of the kernel, mapped by a Reader.
type liveFile struct {
	m        *mapping
	id       uint32   // the kernel's number of the map
	counters int      // slots of a CPU
	stride   int      // words from one CPU's slots to the next one's
	words    []uint64 // the slots of all CPUs
	epoch    *uint64
}

// liveTries bounds the tries at one slot. A CPU may take long between its two stores, for example in an interrupt.
const liveTries = 1 << 12

// maxLiveCounters is the most slots that a map has for one CPU.
const maxLiveCounters = 1 << 20

// Handle returns the handle that the Live was made from.
func (l *Live) Handle() Handle { return l.handle }

// Load returns the counter's current total: packets, and the bytes of exactly those packets on each CPU. The total includes
// every packet counted before the call. It is never less than a value of the counter that this goroutine has read before, from
// the mirror or by Load. There is no sample time. The total grows as long as the kernel counts, even after the death of the
// writer's process: see Reader.Status.
//
// Load makes no system call, allocates nothing, waits for no process, and like HandleCounter.Load is not guarded. ErrNoLive: the
// counter is counted elsewhere now. ErrGone: it was removed. ErrStale: the writer gave the mirror up. ErrBusy: try again.
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

	// The counts first, the state and the epoch afterwards: if the slot serves the counter now, the counts were its own.
	loadFence() // barrier view-fence
	if atomic.LoadUint64(l.state) != l.knownState || atomic.LoadUint64(l.epoch) != l.knownEpoch {
		return l.load()
	}
	runtime.KeepAlive(l)
	bytes = l.base[1] + (s-p)>>8
	return l.base[0] + p, bytes + bytes>>63<<56, nil // negative if the slots' 56 bits of bytes have wrapped around
}

// load is the slow form of Load, for a slot between its two stores, and for a counter with another slot or base.
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
		if atomic.LoadUint64(l.state) == l.knownState && atomic.LoadUint64(l.epoch) == l.knownEpoch {
			bytes = l.base[1] + (s-p)>>8
			return l.base[0] + p, bytes + bytes>>63<<56, nil
		}
	}
	return 0, 0, ErrBusy
}

// loadPair reads one CPU's slot. The first word is the number of packets. The second is 256 times their bytes, plus the number
// of packets, so its low byte tells which first word it belongs to. The kernel stores the first word, then the second, and adds
// at most 255 packets at once. loadPair returns false if it met the CPU between the two stores in every try.
//
// loadPair reads second, first, second; Go's atomic loads keep this order on every architecture. If second did not change and
// its low byte is that of first, the two belong together. If the low bytes differ, first is ahead. On amd64 the kernel's stores
// become visible in order, so first is ahead by one addition at most, and the difference says by how much: subtract it. On
// arm64 the stores may become visible in either order, so the difference proves nothing, and loadPair tries again.
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

// storesInOrder says whether all CPUs see the stores of one CPU in program order. amd64 guarantees that, arm64 does not.
const storesInOrder = runtime.GOARCH == "amd64" || runtime.GOARCH == "386"

// Live finds the memory in which the kernel counts a counter. The first call, and the first one after the writer changed to
// another map, asks the socket NAME.live beside the mirror for a descriptor. That takes a second at most. ErrNoLive: the writer
// hands out no descriptor (mirror.live_mode), or not to this process, or the counter is counted elsewhere, for example in
// hardware. ErrGone: it was removed. ErrStale: the mirror was replaced, so open it again.
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
	for fresh := false; ; fresh = true { // twice at most: with the map from the last call, then with the writer's current one
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

// errOtherMap: the entry names a map that this Reader has not mapped.
var errOtherMap = fmt.Errorf("it is counted in another map than the one that this process has: %w", ErrNoLive)

// resolve finds the counter's slot in f. errOtherMap: the slot is in another map, or f is nil.
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

		// If another process takes the map over, it raises the epoch before the kernel counts for its counters in this slot.
		epoch := atomic.LoadUint64(f.epoch)
		if uint32(epoch) != s.slot.Epoch {
			return fmt.Errorf("another process has taken up the map since: %w", ErrNoLive)
		}

		l.f = f
		l.words = f.words
		l.at = 2 * int(s.slot.Slot)
		l.stride = f.stride
		l.base = [2]uint64{s.slot.BasePackets, s.slot.BaseBytes}
		l.knownState = s.state
		l.epoch = f.epoch
		l.knownEpoch = epoch
		return nil
	}
	return ErrBusy
}

// liveState holds the live words of an entry. state is the first of them: the slot in the low half, and in the high half a
// sequence number, which is odd while the writer changes the words.
type liveState struct {
	state uint64
	slot  LiveSlot
}

// readLive returns the live words of one instant. It returns false if the writer changed them meanwhile.
func (e *entryMem) readLive() (liveState, bool) {
	state := atomic.LoadUint64(&e.live) // barrier view-acquire: the even number before the other words
	mapAndEpoch := atomic.LoadUint64(&e.liveMap)
	packets, bytes := atomic.LoadUint64(&e.liveBase[0]), atomic.LoadUint64(&e.liveBase[1])
	loadFence() // barrier view-words-fence: the other words before the second look

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
