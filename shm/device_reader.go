package shm

import (
	"cmp"
	"fmt"
	"runtime"
	"sync/atomic"

	"github.com/flowtally/flowtally/shm/words"
)

// Device reads the two words of one counter that a device writes. Any number of goroutines may use a Device concurrently. It
// keeps working when the mirror is made anew, because the words do not move. Reader.Device makes one. The zero Device must not
// be used.
type Device struct {
	slot     *deviceSlotMem
	words    *[2]uint64 // in the slot, or in the words file that it names
	seq      uint64     // the slot's sequence word as long as it serves this counter
	ended    *int64     // of the segment: when its writer ended
	identity *uint64    // of the entry, in the mirror that the Device was made from
	handle   Handle

	// These keep the memory mapped.
	segment *mapping
	apart   *words.Mapping // the words file; nil: the words are in the segment
	mirror  *view
}

// deviceFile is a segment as a Reader has mapped it.
type deviceFile struct {
	m *mapping
	v *deviceView
}

// Handle returns the handle that the Device was made from.
func (d *Device) Handle() Handle { return d.handle }

// Load returns the device's current totals: completions and errors. The device writes the two words one at a time, so each
// total is correct, but the pair need not belong to one instant. There is no sample time, because a device does not store one.
//
// Load allocates nothing, and like HandleCounter.Load is not guarded. ErrNoDevice: the words no longer serve this counter;
// read its ordinary value. ErrGone: the counter was removed. ErrBusy: try again.
func (d *Device) Load() (comp, errs uint64, err error) {
	defer runtime.KeepAlive(d)
	comp, cerr := d.slot.total(d.words, completions)
	errs, eerr := d.slot.total(d.words, failures)

	// Look at the slot after the words: if it still serves the counter, the words were the counter's when we read them. On
	// arm64 this load cannot overtake those of the words, because each of them is a load-acquire (barrier device-fence).
	if atomic.LoadUint64(&d.slot.seq) != d.seq || atomic.LoadInt64(d.ended) != 0 {
		if atomic.LoadUint64(d.identity) != identity(entLive, d.handle.Generation) {
			return 0, 0, ErrGone
		}
		return 0, 0, ErrNoDevice
	}
	switch {
	case cerr != nil:
		return 0, 0, cerr
	case eerr != nil:
		return 0, 0, eerr
	}
	return comp, errs, nil
}

// Device finds the words that a device writes for a counter. ErrNoDevice: no device writes for it. ErrGone: the counter was
// removed. ErrStale: this mirror was replaced, so open it again. A Device made before keeps working.
func (r *Reader) Device(h Handle) (d Device, err error) {
	err = r.guard(func() error {
		d, err = r.resolveDevice(h)
		return err
	})
	if err != nil {
		return Device{}, fmt.Errorf("%s: looking for the device of counter %d: %w", r.path, h.Index, err)
	}
	return d, nil
}

func (r *Reader) resolveDevice(h Handle) (Device, error) {
	p, err := r.v.place(h.Index)
	if err != nil {
		return Device{}, err
	}

	generation := &r.v.hdr.deviceGeneration
	for range maxTries {
		g := atomic.LoadUint64(generation)
		if !p.live(h) {
			return Device{}, ErrGone
		}
		if g == 0 {
			return Device{}, ErrNoDevice
		}
		f, err := r.deviceFile(g)
		if err != nil && atomic.LoadUint64(generation) != g {
			continue // the writer has replaced the segment meanwhile
		}
		if err != nil {
			return Device{}, err
		}

		c, err := r.claim(p, f)
		if err != nil {
			return Device{}, err
		}
		if !p.confirms(h, &c) || atomic.LoadUint64(generation) != g {
			continue
		}
		d := Device{
			slot:     c.slot,
			words:    &c.slot.words,
			seq:      c.seq,
			ended:    &f.v.hdr.endedAt,
			identity: &p.entry().identity,
			handle:   h,
			segment:  f.m,
			mirror:   r.v,
		}
		if c.apart == 0 {
			return d, nil
		}

		d.apart, err = r.wordsFile(c.apart)
		if err == nil {
			d.words = d.apart.Words
			return d, nil
		}
		if p.confirms(h, &c) {
			return Device{}, err
		}
		// The words changed hands while we asked for their file: try again.
	}
	return Device{}, ErrBusy
}

// claim is the slot that an entry named, and what must not have changed since: see confirms.
type claim struct {
	slot         *deviceSlotMem
	seq          uint64 // of the slot, loaded after the entry
	id, entrySeq uint64 // of the entry
	apart        uint64 // number of the words file; 0: the slot has the words
}

// claim reads which slot of f the entry at p names.
func (r *Reader) claim(p place, f *deviceFile) (claim, error) {
	var e entryMem
	id, current, err := p.entry().read(&e)
	if err != nil {
		return claim{}, err
	}
	n := e.slots[current].device
	if n == 0 || f.v.ended() {
		return claim{}, r.noDevice()
	}
	if int(n) > len(f.v.slots) {
		return claim{}, fmt.Errorf("slot %d of %d: %w", n-1, len(f.v.slots), ErrFormat)
	}

	c := claim{slot: &f.v.slots[n-1], id: id, entrySeq: e.seq}
	c.seq = atomic.LoadUint64(&c.slot.seq) // barrier slot-given-acquire: the odd number before the words, shift and seen
	if atomic.LoadUint32(&c.slot.state) == wordsApart {
		if c.apart = atomic.LoadUint64(&c.slot.owner); c.apart == 0 {
			return claim{}, fmt.Errorf("slot %d names words file 0: %w", n-1, ErrFormat)
		}
	}
	// Load the mark after seq. If the mirror was replaced before, this catalogue is out of date, and only the next mirror's
	// says which counter has the slot.
	return c, r.v.stale()
}

// confirms reports whether the slot of c serves h. The entry named the slot before we loaded its seq, and still names it. So as
// long as the slot has this seq, it serves no other counter.
func (p place) confirms(h Handle, c *claim) bool {
	e := p.entry()
	return c.seq&1 == 1 && c.id == identity(entLive, h.Generation) &&
		atomic.LoadUint64(&e.seq) == c.entrySeq && atomic.LoadUint64(&e.identity) == c.id && atomic.LoadUint64(&c.slot.seq) == c.seq
}

// noDevice returns the error for an entry that names no slot: ErrStale in a replaced mirror, whose catalogue is out of date.
func (r *Reader) noDevice() error { return cmp.Or(r.v.stale(), ErrNoDevice) }

// deviceFile returns the segment of that generation. It maps the file unless the last call did.
func (r *Reader) deviceFile(generation uint64) (*deviceFile, error) {
	r.mu.RLock()
	f := r.device
	r.mu.RUnlock()
	if f != nil && f.v.fixed.generation == generation {
		return f, nil
	}

	path := devicePath(r.path)
	m, err := openDevice(path, r.options)
	if err != nil {
		return nil, err
	}
	v, err := attachDevice(m.b)
	if err != nil {
		return nil, fmt.Errorf("%s: opening device segment: %w", path, err)
	}
	if v.fixed.generation != generation {
		return nil, fmt.Errorf("%s: opening device segment: it is of another mirror or writer: %w", path, r.noDevice())
	}

	f = &deviceFile{m: m, v: v}
	r.mu.Lock()
	r.device = f
	r.mu.Unlock()
	return f, nil
}

// openDevice maps the device segment at path read-only.
func openDevice(path string, o ReaderOptions) (*mapping, error) {
	f, st, err := openTrusted(path, o)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if st.Size < deviceHeaderSize {
		return nil, fmt.Errorf("%s: opening device segment: %w", path, tooShort(st.Size))
	}
	return mapFile(f, 0, uint64(st.Size), false)
}
