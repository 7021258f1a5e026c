package shm

import (
	"fmt"
	"runtime"
	"sync/atomic"
)

// checkDevice checks the device segment of the mirror, if the header names one, and that entries and slots agree.
func (v *view) checkDevice(path string) []Problem {
	generation := atomic.LoadUint64(&v.hdr.deviceGeneration)
	if generation == 0 {
		return nil
	}
	c := &checker{v: v}
	if err := c.deviceFile(devicePath(path), generation); err != nil {
		c.add("device segment", 0, "%v", err)
	}
	if atomic.LoadUint64(&v.hdr.deviceGeneration) != generation {
		return nil // another writer is taking over
	}
	return c.ps
}

func (c *checker) deviceFile(path string, generation uint64) error {
	m, err := openDevice(path, ReaderOptions{AnyOwner: true})
	if err != nil {
		return err
	}
	defer runtime.KeepAlive(m)
	d, err := attachDevice(m.b)
	if err != nil {
		return err
	}

	h := c.v.hdr
	if got := d.fixed.generation; got != generation {
		return fmt.Errorf("has generation %d, the mirror names %d", got, generation)
	}
	if n := uint64(len(m.b)); n != d.fixed.fileLength || n != atomic.LoadUint64(&h.deviceLength) {
		c.add("device segment", devFileLength, "is %d bytes long, its header says %d, the mirror %d", n, d.fixed.fileLength, h.deviceLength)
	}
	for _, r := range [][2]uint64{{devSlots + 4, devChecksum}, {devChecksum + 8, devEndedAt}, {devEndedAt + 8, deviceHeaderSize}} {
		c.zero("device segment", r[0], m.b[r[0]:r[1]])
	}

	end := deviceHeaderSize + uint64(len(d.slots))*deviceSlotSize
	c.zero("device segment", end, m.b[end:deviceLength(uint32(len(d.slots)))])
	for i := range d.slots {
		c.deviceSlot(uint32(i), &d.slots[i])
	}
	c.deviceNames(d)
	return nil
}

// deviceSlot checks a slot of the segment as it stood under one sequence word.
func (c *checker) deviceSlot(i uint32, s *deviceSlotMem) {
	object := fmt.Sprintf("device slot %d", i)
	at := deviceHeaderSize + uint64(i)*deviceSlotSize
	b := bytesOf(s)
	c.zero(object, at+dslWords+16, b[dslWords+16:dslSeq])
	c.zero(object, at+dslState+4, b[dslState+4:dslOwner])

	seq := atomic.LoadUint64(&s.seq)
	before := len(c.ps)
	if seq&1 == 0 {
		return // it serves no counter: its words mean nothing
	}
	limit := atomic.LoadUint64(&s.maxValue)
	if limit == 0 {
		c.add(object, at+dslMaxValue, "serves a counter, with a largest value of 0")
	}
	switch state, apart := atomic.LoadUint32(&s.state), atomic.LoadUint64(&s.owner); {
	case state > wordsApart:
		c.add(object, at+dslState, "state is %d", state)
	case (state == wordsApart) != (apart != 0):
		c.add(object, at+dslOwner, "state is %d, and the number of the words file is %d", state, apart)
	}
	for which := range uint64(2) {
		if word := atomic.LoadUint64(&s.words[which]); word > limit {
			c.add(object, at+dslWords+8*which, "word is %d, above its largest value %d", word, limit)
		}
		if shift := atomic.LoadUint64(&s.shift[which]); shift > limit {
			c.add(object, at+dslShift+8*which, "shift is %d, above the largest value %d", shift, limit)
		}
	}
	if atomic.LoadUint64(&s.seq) != seq {
		c.ps = c.ps[:before] // the writer changed the slot meanwhile
	}
}

// deviceNames checks that the slots that entries name exist, and are filled, and that no two entries name one slot.
func (c *checker) deviceNames(d *deviceView) {
	v := c.v
	before := len(c.ps)
	changes := atomic.LoadUint64(&v.hdr.catalogueChanges)
	entryBySlot := make(map[uint32]uint32)
	var e entryMem
	_ = v.eachUsed(func(i uint32, p place) {
		id, slot, err := p.entry().read(&e)
		n := e.slots[slot].device
		if err != nil || n == 0 {
			return
		}
		object, at := fmt.Sprintf("entry %d", i), v.entryOffset(i)+entSlots+slot*slotSize+slotDevice
		if other, twice := entryBySlot[n]; twice {
			c.add(object, at, "names device slot %d, as entry %d does", n-1, other)
		}
		entryBySlot[n] = i

		switch {
		case int(n) > len(d.slots):
			c.add(object, at, "names device slot %d of %d", n-1, len(d.slots))
		case atomic.LoadUint64(&d.slots[n-1].seq)&1 == 0 && atomic.LoadUint64(&p.entry().identity) == id:
			c.add(object, at, "names device slot %d, which serves no counter", n-1)
		}
	})
	if atomic.LoadUint64(&v.hdr.catalogueChanges) != changes {
		c.ps = c.ps[:before] // a writer is at work: the entries were not read at one instant
	}
}
