package shm

import (
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
)

// LiveSlot says where the kernel counts for a counter: total = base + sum over all CPUs of a slot of a map. Without Map
// readers cannot read the counter there.
type LiveSlot struct {
	Map   uint32 // the kernel's number of the map
	Epoch uint32 // low half of the map's epoch: under another one the slot may be another counter's
	Slot  uint32
	// The total of the counter when the slots were 0.
	BasePackets, BaseBytes uint64
}

// Live reads one counter in the memory in which the kernel counts it, with no poller in between. It belongs to one
// goroutine at a time; a copy of it is another Live. Made by Reader.Live; the zero Live must not be used.
type Live struct {
	words  []uint64 // the slots of all CPUs
	at     int      // the slot of the first CPU
	stride int      // words from one CPU's slots to the next one's
	base   [2]uint64

	state *uint64 // of the entry, and the value under which the slot serves the counter
	under uint64
	epoch *uint64 // of the map, and its value then
	of    uint64

	handle Handle
	r      *Reader
	f      *liveFile // keeps the memory mapped
	v      *view
}

// liveFile is a map as a Reader has it mapped.
type liveFile struct {
	m        *mapping
	id       uint32
	counters int
	stride   int
	words    []uint64
	epoch    *uint64
}

// liveTries bounds the attempts at one slot: a CPU may stop between its two stores, as for an interrupt.
const liveTries = 1 << 12

// maxLiveCounters is the most slots that a map has for one CPU.
const maxLiveCounters = 1 << 20

// Handle returns the handle that the Live was made from.
func (l *Live) Handle() Handle { return l.handle }

// Load returns the counter's total now: packets, and the bytes of exactly those packets on each CPU. It is at least
// every value of the counter that this goroutine has read before, from the mirror or by Load, and includes each packet
// that was counted before the call. It makes no system call, allocates nothing and waits for no process; there is no
// sample time. The count goes on while the writer's process is dead and the kernel counts on; see Reader.Status.
// ErrNoLive: the counter is counted elsewhere now. ErrGone: it was removed. ErrStale: the mirror was given up. ErrBusy:
// try again. As Counter.Load it is not guarded.
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
	return l.base[0] + p, bytes + bytes>>63<<56, nil // it is below zero where the slots' 56 bits of bytes have wrapped around
}

// load is Load where a slot was met between its two stores, or the counter's slot or its base has changed.
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

// loadPair reads one CPU's slot: packets, and 256 times their bytes plus packets. The kernel stores the first word, then the
// second; at most 255 packets are added at once. Where the second word is the same around the load of the first, the low
// bytes tell by how many packets that one is ahead. Where stores become visible in order its earlier value is known by
// that; elsewhere it is loaded again. (Go's atomic loads keep their order on every architecture.)
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

// Live prepares reading a counter in the memory in which the kernel counts it. The first call, and the first after the
// writer has another map, asks the socket NAME.live beside the mirror for a descriptor, which takes a second at
// most. ErrNoLive: the writer hands out no descriptor (mirror.live_mode), or not to this process, or the counter is
// counted elsewhere, as in hardware. ErrGone: it was removed. ErrStale: the mirror was replaced, open it again.
func (r *Reader) Live(h Handle) (l Live, err error) {
	err = r.guard(func() error { l, err = r.findLive(h); return err })
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
	l := Live{state: &p.entry().live, handle: h, r: r, v: r.v}
	r.mu.RLock()
	f := r.live
	r.mu.RUnlock()
	for fresh := false; ; fresh = true {
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

// resolve finds the counter's slot in f, which may be nil.
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
		// The epoch rises before the kernel counts for others in this slot.
		of := atomic.LoadUint64(f.epoch)
		if uint32(of) != s.slot.Epoch {
			return fmt.Errorf("another process has taken up the map since: %w", ErrNoLive)
		}
		l.words, l.at, l.stride, l.f = f.words, 2*int(s.slot.Slot), f.stride, f
		l.base = [2]uint64{s.slot.BasePackets, s.slot.BaseBytes}
		l.under, l.epoch, l.of = s.state, f.epoch, of
		return nil
	}
	return ErrBusy
}

// liveState is the live words of an entry under one value of the first of them.
type liveState struct {
	state uint64
	slot  LiveSlot
}

// readLive returns the live words as they stood at one instant, and false if they are being changed.
func (e *entryMem) readLive() (liveState, bool) {
	state := atomic.LoadUint64(&e.live) // barrier view-acquire
	of, packets, bytes := atomic.LoadUint64(&e.liveMap), atomic.LoadUint64(&e.liveBase[0]), atomic.LoadUint64(&e.liveBase[1])
	loadFence() // barrier view-words-fence
	s := liveState{state, LiveSlot{Map: uint32(of >> 32), Epoch: uint32(of), Slot: uint32(state), BasePackets: packets, BaseBytes: bytes}}
	return s, state>>32&1 == 0 && atomic.LoadUint64(&e.live) == state
}
