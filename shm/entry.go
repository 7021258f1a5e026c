package shm

import (
	"fmt"
	"sync/atomic"
)

// maxTries bounds every loop that retries because the writer changed what it was reading. A reader must not loop for ever
// beside a fast writer, or in a damaged file.
const maxTries = 64

// read copies the entry as it was at one instant, live. It returns the identity word, and which of the two slots is
// current.
func (e *entryMem) read(dst *entryMem) (id, slot uint64, err error) {
	if id, slot, err = e.readUsed(dst); err == nil && id>>32 != entLive {
		return 0, 0, ErrGone
	}
	return id, slot, err
}

// readUsed is read for an entry that is live or retired. A removed counter keeps its fields until its slot serves
// another counter.
//
// Two looks at identity and seq enclose the copy. The first ones are load-acquires, so the copy comes after them. The
// load fence keeps the second ones after the copy, whose plain loads a later load could overtake on arm64. The writer
// stores another identity before it fills the entry for another counter, and raises seq before the slot that was
// current is overwritten. So if both words are unchanged, the copy is of one instant.
func (e *entryMem) readUsed(dst *entryMem) (id, slot uint64, err error) {
	for range maxTries {
		id = atomic.LoadUint64(&e.identity) // barrier entry-acquire: identity before the fields
		if state := id >> 32; state != entLive && state != entRetired {
			return 0, 0, ErrGone
		}

		seq := atomic.LoadUint64(&e.seq) // barrier slot-acquire: seq before the slot
		copyWords(wordsAt(dst), wordsAt(e))
		loadFence() // barrier entry-fence: the copy before the second looks
		if atomic.LoadUint64(&e.seq) == seq && atomic.LoadUint64(&e.identity) == id {
			return id, seq & 1, nil
		}
	}
	return 0, 0, ErrBusy
}

// describe reads and decodes the entry of index i. scratch holds the copy.
func (p place) describe(i uint32, scratch *entryMem) (Entry, error) {
	id, slot, err := p.entry().read(scratch)
	if err != nil {
		return Entry{}, err
	}
	return p.decode(i, scratch, id, slot), nil
}

// decode decodes scratch, a copy made by read.
func (p place) decode(i uint32, scratch *entryMem, id, slot uint64) Entry {
	s := &scratch.slots[slot]
	return Entry{
		Handle:    Handle{Index: i, Generation: uint32(id)},
		Name:      getString(scratch.name[:]),
		Kind:      getString(scratch.kind[:]),
		Unit:      getString(scratch.unit[:]),
		Text:      getString(scratch.text[:]),
		Labels:    decodeLabels(scratch.labels[:]),
		Latency:   p.latency(),
		Source:    getString(s.source[:]),
		ByteBasis: getString(s.basis[:]),
		Width:     s.width,
		Valid:     s.flags&slotFlagValid != 0,
		Stale:     s.flags&slotFlagStale != 0,
		Ambiguous: s.flags&slotFlagAmbiguous != 0,
		AddedAt:   scratch.addedAt,
		Continuity: Continuity{
			Cookie:          s.cookie,
			BasePackets:     s.basePackets,
			BaseBytes:       s.baseBytes,
			Discontinuities: s.discontinuities,
			Seen:            s.seen,
		},
	}
}

// encode fills dst, all of the entry of a counter being added, with the identity BUILDING. The slot belongs to the counter from
// epoch born on.
func (e *Entry) encode(dst *entryMem, born uint64) error {
	if err := fits("name", e.Name, nameSize, false); err != nil {
		return err
	}
	if err := fits("kind", e.Kind, kindSize, true); err != nil {
		return fmt.Errorf("counter %q: %w", e.Name, err)
	}
	if err := fits("unit", e.Unit, unitSize, true); err != nil {
		return fmt.Errorf("counter %q: %w", e.Name, err)
	}
	labels, err := encodeLabels(e.Labels)
	if err != nil {
		return err
	}

	*dst = entryMem{
		identity: identity(entBuilding, e.Handle.Generation),
		addedAt:  e.AddedAt,
		born:     born,
		labels:   labels,
	}
	putString(dst.name[:], e.Name)
	putString(dst.kind[:], e.Kind)
	putString(dst.unit[:], e.Unit)
	if putCut(dst.text[:], e.Text, TextSum) {
		dst.flags |= entFlagTextCut
	}

	s := &dst.slots[0]
	s.setFlags(e.Valid, e.Stale, e.Ambiguous)
	s.setContinuity(e.Continuity)
	s.width = e.Width
	return s.setSource(e.Source, e.ByteBasis)
}

func (s *slotMem) setFlags(valid, stale, ambiguous bool) {
	s.flags &= slotFlagSourceCut
	for i, on := range [...]bool{valid, stale, ambiguous} {
		if on {
			s.flags |= slotFlagValid << i
		}
	}
}

func (s *slotMem) setContinuity(c Continuity) {
	s.cookie = c.Cookie
	s.basePackets, s.baseBytes = c.BasePackets, c.BaseBytes
	s.discontinuities, s.seen = c.Discontinuities, c.Seen
}

func (s *slotMem) setSource(source, basis string) error {
	if err := fits("byte basis", basis, basisSize, true); err != nil {
		return err
	}
	putString(s.basis[:], basis)
	s.flags &^= slotFlagSourceCut
	if putCut(s.source[:], source, func(string) string { return "…" }) {
		s.flags |= slotFlagSourceCut
	}
	return nil
}
