package shm

import (
	"bytes"
	"fmt"
	"strings"
	"sync/atomic"
	"unicode/utf8"
)

// catalogue checks every entry, that names are unique, and the fill levels.
func (c *checker) catalogue(list []*segment) {
	changes := atomic.LoadUint64(&c.v.hdr.catalogueChanges)
	indexByName := make(map[string]uint32)
	var used [2]int // by class
	var twice []func()
	var e entryMem
	c.written = make([]uint32, len(list))
	for n, s := range list {
		high := c.v.high(n)
		for k := uint32(0); k < SegmentLen; k++ {
			if c.full() {
				return
			}
			// From the high-water mark on, most slots were never written, and reading one makes the kernel allocate and
			// clear a page. So skip holes, and look for the next one at each block. (block checks the live bits even of
			// slots in a hole.)
			if k == high || k > high && k%BlockLen == 0 {
				if k = c.behindHole(n, k); k == SegmentLen {
					break
				}
			}
			c.written[n] = k + 1

			i := uint32(n)*SegmentLen + k
			if !c.entry(i, place{s, k}, &e) {
				continue
			}
			used[classOf(s.kind == kindRecords)]++
			name := getString(e.name[:])
			if first, ok := indexByName[name]; ok {
				twice = append(twice, func() {
					c.add(fmt.Sprintf("entry %d", i), c.v.entryOffset(i)+entName, "entry %d has the name %q too", first, name)
				})
			}
			indexByName[name] = i
		}
	}

	if atomic.LoadUint64(&c.v.hdr.catalogueChanges) != changes || len(list) < c.v.declared() {
		return // a writer changed entries meanwhile, so names and numbers need not agree
	}
	for _, report := range twice {
		report()
	}
	c.fillLevels(used)
}

// fillLevels compares the header's numbers of live counters with used, the numbers of live entries. They may differ by one,
// because an Add or a Remove may be, or may have been killed, between the two stores.
func (c *checker) fillLevels(used [2]int) {
	h := c.v.hdr
	for class, p := range []*uint32{&h.countersUsed, &h.recordsUsed} {
		if n := int(atomic.LoadUint32(p)); n > used[class]+1 || n < used[class]-1 {
			c.add("header", []uint64{hdrCountersUsed, hdrRecordsUsed}[class], "says %d live, %d are", n, used[class])
		}
	}
}

// behindHole returns the first slot of segment n, from k on, that is not in a hole of the file.
func (c *checker) behindHole(n int, k uint32) uint32 {
	begin := c.v.segmentOffset(n)
	at := max(begin, c.v.store.nextWritten(begin+uint64(k)*entrySize)) - begin
	return max(k, uint32(min(at/entrySize, SegmentLen)))
}

// entry checks the entry of index i, and reports whether it is live. If so, it copies the entry to e.
func (c *checker) entry(i uint32, at place, e *entryMem) (live bool) {
	p := &at.entry().identity
	if isZero(wordsAt(at.entry())) {
		return false
	}

	// Load the identity first, the mark afterwards: the writer raises the mark before it uses a slot.
	object, off := fmt.Sprintf("entry %d", i), c.v.entryOffset(i)
	id := atomic.LoadUint64(p)
	state, generation := uint32(id>>32), uint32(id)
	if state != entUnused && at.n >= c.v.high(int(i/SegmentLen)) {
		c.add(object, off, "is used, beyond the high-water mark of its segment")
	}

	switch state {
	case entUnused:
		before := len(c.ps)
		c.zero(object, off, bytesOf(at.entry()))
		if len(c.ps) > before && atomic.LoadUint64(p) != id {
			c.ps = c.ps[:before] // a writer has just begun to fill it
		}
		return false
	case entBuilding, entRetired, entLive:
		if generation == 0 {
			c.add(object, off, "is used, with generation 0")
		}
	default:
		c.add(object, off, "state %d is unknown", state)
	}
	if state != entLive {
		return false
	}

	_, slot, err := at.entry().read(e)
	if err != nil {
		return false // gone meanwhile
	}
	before := len(c.ps)
	c.entryText(object, off, e)
	c.entrySlot(object, off+entSlots+slot*slotSize, &e.slots[slot])
	if e.flags>>1 != 0 {
		c.add(object, off+entFlags, "flags %#x are unknown", e.flags)
	}
	b := bytesOf(e)
	for _, r := range [][2]uint64{{entFlags + 4, entName}, {entSeq + 8, entLiveState}} {
		c.zero(object, off+r[0], b[r[0]:r[1]])
	}
	c.live(object, off, at.entry())
	if epoch := epochOf(atomic.LoadUint64(at.seq())); e.born > epoch {
		c.add(object, off+entBorn, "was added in epoch %d, which is %d", e.born, epoch)
	}

	if atomic.LoadUint64(p) != id {
		c.ps = c.ps[:before] // the counter was removed meanwhile
		return false
	}
	return true
}

// entrySlot checks the current slot of an entry. offset is where it is in the file.
func (c *checker) entrySlot(object string, offset uint64, s *slotMem) {
	if s.flags>>4 != 0 {
		c.add(object, offset, "flags %#x are unknown", s.flags)
	}
	c.text(object, offset+slotBasis, "byte basis", s.basis[:])
	c.text(object, offset+slotSource, "source", s.source[:])
}

// live checks the live words of an entry, read at one instant.
func (c *checker) live(object string, off uint64, e *entryMem) {
	s, ok := e.readLive()
	switch {
	case !ok: // the writer is changing them, or was killed while it did
	case s.slot.Map == 0 && s.slot != LiveSlot{}:
		c.add(object, off+entLiveState, "names slot %d of no map", s.slot.Slot)
	case s.slot.Slot >= maxLiveCounters:
		c.add(object, off+entLiveState, "names slot %d of map %d, which holds fewer", s.slot.Slot, s.slot.Map)
	}
}

func (c *checker) entryText(object string, at uint64, e *entryMem) {
	if e.name[0] == 0 {
		c.add(object, at+entName, "name is empty")
	}
	c.text(object, at+entName, "name", e.name[:])
	c.text(object, at+entKind, "kind", e.kind[:])
	c.text(object, at+entUnit, "unit", e.unit[:])
	c.text(object, at+entText, "text", e.text[:])
	c.labels(object, at+entLabels, e.labels[:])
}

// labels checks that a field is a sorted list of key=value, each with a NUL at its end, and padded with NULs.
func (c *checker) labels(object string, at uint64, field []byte) {
	if field[len(field)-1] != 0 {
		c.add(object, at, "labels do not end with NUL")
	}
	last := ""
	for len(field) > 0 && field[0] != 0 {
		s := getString(field)
		key, _, ok := strings.Cut(s, "=")
		if !ok || key <= last || !utf8.ValidString(s) {
			c.add(object, at, "label %q is not key=value in order", s)
		}
		last = key
		field = field[min(len(s)+1, len(field)):]
	}
	if len(bytes.Trim(field, "\x00")) != 0 {
		c.add(object, at, "labels go on after their end")
	}
}

// text checks a padded string.
func (c *checker) text(object string, at uint64, what string, field []byte) {
	n := bytes.IndexByte(field, 0)
	switch {
	case n < 0:
		c.add(object, at, "%s does not end with NUL", what)
	case len(bytes.Trim(field[n:], "\x00")) != 0:
		c.add(object, at, "%s is not padded with NUL", what)
	case !utf8.Valid(field[:n]):
		c.add(object, at, "%s is not UTF-8", what)
	}
}
