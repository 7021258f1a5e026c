package shm

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/flowtally/flowtally/shm/words"
)

// DeviceSegment is the file NAME.device beside a mirror: words that a device writes by DMA, and that readers read where
// they stand, with no poller in between. A writer makes it once, and it stays where it is as long as the writer lives,
// whatever becomes of the mirror's own file. The next writer makes another. Made by Writer.DeviceSegment; its methods may
// be called from any goroutine.
type DeviceSegment struct {
	w *Writer
	m *mapping
	v *deviceView

	// Guarded by w.mu.
	slots []*DeviceSlot // by number; nil: free
	next  int           // where the search for a free slot begins: a freed slot rests as long as it can
}

// DeviceSlot is the place of one counter's two words. A program that gave the words to a device keeps the DeviceSlot as
// long as the device may write there: the DeviceSlot keeps the memory mapped.
type DeviceSlot struct {
	seg    *DeviceSegment
	number uint32
	apart  *words.File // the words file that has the words; nil: the slot itself has them

	// Guarded by the writer's mu.
	handle Handle // of the counter that the slot serves, while set
	freed  bool

	// mu is held while the writer's cache line of the slot changes. Readers take no lock. Of the two locks the writer's
	// comes first; Rebase takes mu alone.
	mu  sync.Mutex
	set bool // the slot serves a counter. Changed under both locks.
}

func (s *DeviceSlot) mem() *deviceSlotMem { return &s.seg.v.slots[s.number] }

// words returns the two words of the slot.
func (s *DeviceSlot) words() *[2]uint64 {
	if s.apart != nil {
		return s.apart.Words()
	}
	return &s.mem().words
}

// newDeviceSegment lays a segment over m, which is zero.
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

// Slots is how many slots there are, and how many are taken.
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

// Words returns the memory of the two words: 8 bytes each, aligned to 8, in a mapping outside the Go heap, to be the
// external memory of a completion counter. It stays mapped as long as something refers to the DeviceSlot.
func (s *DeviceSlot) Words() (comp, err []byte) {
	at := deviceHeaderSize + int(s.number)*deviceSlotSize + dslWords
	b := s.seg.v.b
	return b[at : at+8 : at+8], b[at+8 : at+16 : at+16]
}

// Rebase returns the totals, completions and errors, and notes them for readers if the words have moved far. A word says
// how much was counted since the noted total, up to its largest value. So Rebase must be called before a word comes round;
// once in a poll cycle is plenty. It allocates nothing, and any goroutine may call it, also inside a cycle.
//
// ErrNoDevice: the slot serves no counter. ErrFormat: a word is above the largest value that SetDevice was given.
// ErrTruncated: the segment's file was cut short.
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
	// A store takes the cache line away from readers, so it waits until a quarter of a round was counted.
	if total-m.seen[which] > m.maxValue/4 {
		publish64(&m.seen[which], total) // barrier seen-release (idle: total is computed from the word)
	}
	return total, nil
}

// fill makes the slot serve a counter whose totals are comp and errs now. No entry names the slot yet.
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
	publish64(&m.seq, m.seq+1) // barrier slot-given-release

	s.handle = h
	s.set = true
	return nil
}

// withdraw tells the slot's readers that it no longer serves their counter. No entry names the slot any more.
func (s *DeviceSlot) withdraw() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.set {
		return
	}
	s.set = false
	_ = Guard(func() error { // a file that was cut short has no readers to tell
		// The store fence is for the next fill: its stores stay behind this one.
		announce64(&s.mem().seq, s.mem().seq+1) // barrier withdraw-fence
		return nil
	})
}

// SetDevice says that a device counts for the counter in the words of s. As the words stand now they show the totals comp
// and errs. They come round after limit (max_value of struct ibv_comp_cntr_caps). s takes the place of a slot that was set
// before. The caller publishes the counter's ordinary value, as ever.
func (w *Writer) SetDevice(h Handle, s *DeviceSlot, comp, errs, limit uint64) error {
	return w.onEntry(h, func(ent *entryMem) error {
		return w.setDevice(ent, h, s, comp, errs, limit)
	})
}

func (w *Writer) setDevice(ent *entryMem, h Handle, s *DeviceSlot, comp, errs, limit uint64) error {
	name := getString(ent.name[:])
	switch {
	case s == nil || s.freed || s.seg != w.device:
		return fmt.Errorf("%s: setting the device's words of %q: the slot is not of this writer's segment, or was given back: %w", w.path, name, ErrInvalid)
	case limit == 0:
		return fmt.Errorf("%s: setting the device's words of %q: a largest value of 0 counts nothing: %w", w.path, name, ErrInvalid)
	case s.set && s.handle != h:
		return fmt.Errorf("%s: setting the device's words of %q: slot %d serves counter %d: %w", w.path, name, s.number, s.handle.Index, ErrExists)
	case s.set:
		w.clearDevice(ent)
	}

	if err := s.fill(h, comp, errs, limit); err != nil {
		return fmt.Errorf("%s: setting the device's words of %q: %w", w.path, name, err)
	}
	w.step("device-ready")

	// The entry names the new slot first: readers of the old one look again once it is withdrawn.
	before := w.slotOf(ent)
	w.name(ent, s.number+1)
	w.step("device-named")
	if before != nil {
		before.withdraw()
	}
	w.step("device-set")
	return nil
}

// ClearDevice says that no device counts for the counter any more: it has only its ordinary value. Readers of the words
// get ErrNoDevice. The slot stays taken.
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

// name makes the entry name a slot. device is the slot's number + 1; 0: none.
func (w *Writer) name(ent *entryMem, device uint32) {
	s := ent.slots[ent.seq&1]
	s.device = device
	w.putSlot(ent, &s)
}

// slotOf returns the slot that the entry names; nil: none.
func (w *Writer) slotOf(ent *entryMem) *DeviceSlot {
	n := ent.slots[ent.seq&1].device
	if n == 0 || w.device == nil {
		return nil
	}
	if int(n) > len(w.device.slots) { // the entry was overwritten
		return nil
	}
	return w.device.slots[n-1]
}

// Free gives the slot back. The device's counter must have been destroyed: the words may serve another one next.
// Idempotent.
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
