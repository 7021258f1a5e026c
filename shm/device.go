package shm

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/flowtally/flowtally/shm/words"
)

// DeviceSegment is the file NAME.device beside a mirror. A device writes words in it by DMA, and readers read them there, with
// no poller in between. A writer makes the file once. It stays at its address as long as the writer lives, even if the mirror
// itself is made anew, because the device knows the address. The next writer makes another file. Writer.DeviceSegment makes
// one; any goroutine may call its methods.
type DeviceSegment struct {
	w *Writer
	m *mapping
	v *deviceView

	// Guarded by w.mu.
	slots []*DeviceSlot // by number; nil: free
	next  int           // where the search for a free slot begins, so that a freed slot is reused as late as possible
}

// DeviceSlot is the place of one counter's two words. The DeviceSlot keeps the memory mapped, so a program that gave the words
// to a device must hold on to it as long as the device may write there.
type DeviceSlot struct {
	seg    *DeviceSegment
	number uint32
	apart  *words.File // the words file with the words; nil: the words are in the slot itself

	// Guarded by the writer's mu.
	handle Handle // of the counter that the slot serves, while set
	freed  bool

	// mu guards the writer's cache line of the slot; readers take no lock. Lock order: the writer's mu, then this one.
	// Rebase takes only this one, so that it may run inside a cycle.
	mu  sync.Mutex
	set bool // the slot serves a counter. To change it, hold both locks; to read it, one is enough.
}

func (s *DeviceSlot) mem() *deviceSlotMem { return &s.seg.v.slots[s.number] }

// words returns the two words of the slot.
func (s *DeviceSlot) words() *[2]uint64 {
	if s.apart != nil {
		return s.apart.Words()
	}
	return &s.mem().words
}

// newDeviceSegment formats a segment in m, which must be zero.
func (w *Writer) newDeviceSegment(m *mapping, slots uint32, createdWall int64) (*DeviceSegment, error) {
	generation, err := randomWord()
	if err != nil {
		return nil, err
	}
	return &DeviceSegment{
		w:     w,
		m:     m,
		v:     formatDevice(m.b, slots, generation, createdWall),
		slots: make([]*DeviceSlot, slots),
	}, nil
}

// Slots returns the number of slots, and how many of them are taken.
func (d *DeviceSegment) Slots() (all, taken int) {
	d.w.mu.Lock()
	defer d.w.mu.Unlock()
	for _, s := range d.slots {
		if s != nil {
			taken++
		}
	}
	return len(d.slots), taken
}

// Slot takes a free slot, whose words are 0. ErrFull: there is none.
func (d *DeviceSegment) Slot() (*DeviceSlot, error) {
	d.w.mu.Lock()
	defer d.w.mu.Unlock()
	if d.w.closed {
		return nil, ErrClosed
	}
	for range d.slots {
		n := d.next
		d.next = (d.next + 1) % len(d.slots)
		if d.slots[n] != nil {
			continue
		}

		s := &DeviceSlot{seg: d, number: uint32(n)}
		err := Guard(func() error {
			for i := range s.mem().words {
				atomic.StoreUint64(&s.mem().words[i], 0)
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("%s: taking a slot for a device: %w", d.w.devicePath(), err)
		}
		d.slots[n] = s
		return s, nil
	}
	return nil, fmt.Errorf("%s: taking a slot for a device: all %d are in use: make the segment larger when the writer starts: %w",
		d.w.devicePath(), len(d.slots), ErrFull)
}

// Words returns the memory of the two words: 8 bytes each, aligned to 8, in a mapping outside the Go heap. It can be the
// external memory of a completion counter. It stays mapped as long as something refers to the DeviceSlot.
func (s *DeviceSlot) Words() (comp, err []byte) {
	at := deviceHeaderSize + int(s.number)*deviceSlotSize + dslWords
	b := s.seg.v.b
	return b[at : at+8 : at+8], b[at+8 : at+16 : at+16]
}

// Rebase returns the totals, completions and errors, and stores them for readers if the words have moved far since the last
// store. A word wraps around after its largest value, and readers compute a total from the word and the stored total. So the
// caller must call Rebase at least once per round of a word; once in a poll cycle is plenty. Rebase allocates nothing. Any
// goroutine may call it, even inside a cycle.
//
// ErrNoDevice: the slot serves no counter. ErrFormat: a word is above the limit given to SetDevice. ErrTruncated: the
// segment's file was cut short.
func (s *DeviceSlot) Rebase() (comp, errs uint64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.set {
		return 0, 0, ErrNoDevice
	}
	err = Guard(func() (err error) {
		if comp, err = s.rebase(completions); err == nil {
			errs, err = s.rebase(failures)
		}
		return err
	})
	return comp, errs, err
}

func (s *DeviceSlot) rebase(which int) (uint64, error) {
	m := s.mem()
	total, err := m.total(s.words(), which)
	if err != nil {
		return 0, err
	}
	// A store takes the cache line away from readers, so store only once per quarter of a round.
	if total-m.seen[which] > m.maxValue/4 {
		publish64(&m.seen[which], total) // barrier seen-release: the load of the word before this store (idle: total depends on it)
	}
	return total, nil
}

// fill makes the slot serve a counter whose current totals are comp and errs. No entry may name the slot yet.
func (s *DeviceSlot) fill(h Handle, comp, errs, limit uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()

	m := s.mem()
	var words [2]uint64
	for i := range words {
		if words[i] = atomic.LoadUint64(&s.words()[i]); words[i] > limit {
			return fmt.Errorf("the device's word is %d, above its largest value %d: %w", words[i], limit, ErrInvalid)
		}
	}

	state, owner := uint32(0), uint64(0)
	if s.apart != nil {
		state, owner = wordsApart, s.apart.Number()
	}
	atomic.StoreUint32(&m.state, state)
	atomic.StoreUint64(&m.owner, owner)
	atomic.StoreUint64(&m.maxValue, limit)
	for i, total := range [...]uint64{comp, errs} {
		atomic.StoreUint64(&m.shift[i], shiftOf(words[i], total, limit))
		atomic.StoreUint64(&m.seen[i], total)
	}
	s.seg.w.step("device-filled")
	publish64(&m.seq, m.seq+1) // barrier slot-given-release: the stores above before the odd number

	s.handle = h
	s.set = true
	return nil
}

// withdraw tells readers that the slot no longer serves their counter. No entry may name the slot any more.
func (s *DeviceSlot) withdraw() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.set {
		return
	}
	s.set = false
	_ = Guard(func() error { // a file that was cut short has no readers to tell
		// The next fill stores to the same words. The fence makes the even number visible before those stores, so a reader
		// of this counter that meets one of them finds the number changed.
		announce64(&s.mem().seq, s.mem().seq+1) // barrier withdraw-fence
		return nil
	})
}

// SetDevice tells readers that a device counts for the counter in the words of s. The current numbers in the words mean the
// totals comp and errs. After limit the words wrap around to 0 (max_value of struct ibv_comp_cntr_caps). If the counter has
// another slot already, s replaces it. The caller must still publish the counter's ordinary value in each cycle.
func (w *Writer) SetDevice(h Handle, s *DeviceSlot, comp, errs, limit uint64) error {
	return w.onEntry(h, func(ent *entryMem) error {
		return w.setDevice(ent, h, s, comp, errs, limit)
	})
}

func (w *Writer) setDevice(ent *entryMem, h Handle, s *DeviceSlot, comp, errs, limit uint64) error {
	name := getString(ent.name[:])
	switch {
	case s == nil:
		return fmt.Errorf("%s: setting the device's words of %q: no slot is given: %w", w.path, name, ErrInvalid)
	case s.freed:
		return fmt.Errorf("%s: setting the device's words of %q: slot %d was given back: %w", w.path, name, s.number, ErrInvalid)
	case s.seg != w.device:
		return fmt.Errorf("%s: setting the device's words of %q: slot %d belongs to another mirror: %w", w.path, name, s.number, ErrInvalid)
	case limit == 0:
		return fmt.Errorf("%s: setting the device's words of %q: the limit is 0: give the largest value that the device can reach: %w", w.path, name, ErrInvalid)
	case s.set && s.handle != h:
		return fmt.Errorf("%s: setting the device's words of %q: slot %d serves counter %d: %w", w.path, name, s.number, s.handle.Index, ErrExists)
	case s.set:
		w.clearDevice(ent)
	}

	if err := s.fill(h, comp, errs, limit); err != nil {
		return fmt.Errorf("%s: setting the device's words of %q: %w", w.path, name, err)
	}
	w.step("device-ready")

	// Name the new slot first, withdraw the old one afterwards: a reader that loses the old slot looks into the entry again,
	// and must find the new one.
	before := w.slotOf(ent)
	w.name(ent, s.number+1)
	w.step("device-named")
	if before != nil {
		before.withdraw()
	}
	w.step("device-set")
	return nil
}

// ClearDevice tells readers that no device counts for the counter any more, so it has only its ordinary value. Readers of the
// words get ErrNoDevice. The slot stays taken until Free.
func (w *Writer) ClearDevice(h Handle) error {
	return w.onEntry(h, func(ent *entryMem) error {
		w.clearDevice(ent)
		return nil
	})
}

func (w *Writer) clearDevice(ent *entryMem) {
	s := w.slotOf(ent)
	if s == nil {
		return
	}
	w.name(ent, 0)
	w.step("device-unnamed")
	s.withdraw()
	w.step("device-withdrawn")
}

// name stores in the entry which slot serves it. device is the slot's number + 1; 0 means none.
func (w *Writer) name(ent *entryMem, device uint32) {
	s := ent.slots[ent.seq&1]
	s.device = device
	w.putSlot(ent, &s)
}

// slotOf returns the slot that the entry names, or nil.
func (w *Writer) slotOf(ent *entryMem) *DeviceSlot {
	n := ent.slots[ent.seq&1].device
	if n == 0 || w.device == nil {
		return nil
	}
	if int(n) > len(w.device.slots) { // another process has overwritten the entry
		return nil
	}
	return w.device.slots[n-1]
}

// Free gives the slot back. The device must not write to the words any more (destroy its counter first), because another
// counter may get them next. Idempotent.
func (s *DeviceSlot) Free() {
	w := s.seg.w
	w.mu.Lock()
	defer w.mu.Unlock()
	if s.freed {
		return
	}

	if s.set {
		_ = w.guard(func() error { // after a fault Remake writes the entry without the slot
			ent, err := w.entry(s.handle)
			if err != nil {
				return err
			}
			w.clearDevice(ent)
			return nil
		})
	}
	s.withdraw()
	s.freed = true
	s.seg.slots[s.number] = nil
}
