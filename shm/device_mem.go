package shm

import (
	"fmt"
	"sync/atomic"
)

// deviceHeaderMem and deviceSlotMem overlay the bytes of a device segment, as the structs of unsafe.go overlay a mirror.

type deviceHeaderMem struct {
	magic       [8]byte
	version     uint32
	byteOrder   uint32
	length      uint32
	slotLength  uint32
	fileLength  uint64
	createdWall int64
	generation  uint64
	slots       uint32
	_           uint32
	checksum    uint64
	_           [devEndedAt - devChecksum - 8]byte

	endedAt int64
	_       [deviceHeaderSize - devEndedAt - 8]byte
}

type deviceSlotMem struct {
	words [2]uint64
	_     [dslSeq - 16]byte

	seq      uint64
	maxValue uint64
	shift    [2]uint64
	seen     [2]uint64
	state    uint32
	_        uint32
	owner    uint64
}

// The two words of a slot.
const (
	completions = 0
	failures    = 1
)

// deviceView is a mapped device segment with a valid header.
type deviceView struct {
	b     []byte
	hdr   *deviceHeaderMem
	fixed deviceHeaderMem // the copy that was checked
	slots []deviceSlotMem
}

// maxDeviceSlots bounds a segment to 128 MiB, and the number of a slot to 32 bits.
const maxDeviceSlots = 1 << 20

// deviceLength returns the length of a segment's file: whole pages, because a device gets access to whole pages.
func deviceLength(slots uint32) uint64 {
	n := deviceHeaderSize + uint64(slots)*deviceSlotSize
	return (n + deviceHeaderSize - 1) / deviceHeaderSize * deviceHeaderSize
}

// formatDevice writes the header of a segment into b, which must be zero and have the length of deviceLength. The version stays
// 0, which means not ready, until the caller calls ready.
func formatDevice(b []byte, slots uint32, generation uint64, createdWall int64) *deviceView {
	h := &overlay[deviceHeaderMem](b, 0, 1)[0]
	copy(h.magic[:], deviceMagic)
	h.byteOrder = byteOrder
	h.length = deviceHeaderSize
	h.slotLength = deviceSlotSize
	h.fileLength = uint64(len(b))
	h.createdWall = createdWall
	h.generation = generation
	h.slots = slots

	h.version = deviceVersion // only for the checksum
	h.checksum = fnv64(b[:devChecksum])
	h.version = 0
	return &deviceView{
		b:     b,
		hdr:   h,
		fixed: *h,
		slots: overlay[deviceSlotMem](b, deviceHeaderSize, slots),
	}
}

func (v *deviceView) ready() { atomic.StoreUint32(&v.hdr.version, deviceVersion) }

// attachDevice checks the header of the segment in b. A hostile owner may change the header at any time, so attachDevice copies
// it once, checks the copy, and no other code reads the fixed words in the file.
func attachDevice(b []byte) (*deviceView, error) {
	if len(b) < deviceHeaderSize {
		return nil, tooShort(int64(len(b)))
	}
	hdr := &overlay[deviceHeaderMem](b, 0, 1)[0]
	h := new(deviceHeaderMem)
	atomic.LoadUint32(&hdr.version) // with acquire: the writer stores the version last, so if it is not 0, the rest is there
	copyWords(wordsAt(h), wordsAt(hdr))

	switch {
	case string(h.magic[:]) != deviceMagic:
		return nil, fmt.Errorf("starts with %q, not %q: %w", h.magic[:], deviceMagic, ErrFormat)
	case h.version == 0:
		return nil, ErrNotReady
	case h.byteOrder != byteOrder:
		return nil, fmt.Errorf("byte order mark %#x: %w", h.byteOrder, ErrFormat)
	case h.version != deviceVersion:
		return nil, fmt.Errorf("format version %d, this program knows %d: %w", h.version, deviceVersion, ErrFormat)
	case h.length != deviceHeaderSize || h.slotLength != deviceSlotSize:
		return nil, fmt.Errorf("header of %d bytes and slots of %d: %w", h.length, h.slotLength, ErrFormat)
	}
	if sum := fnv64(bytesOf(h)[:devChecksum]); sum != h.checksum {
		return nil, fmt.Errorf("header checksum %#x, computed %#x: %w", h.checksum, sum, ErrFormat)
	}
	switch {
	case h.slots == 0 || h.slots > maxDeviceSlots || h.fileLength != deviceLength(h.slots):
		return nil, fmt.Errorf("%d slots in %d bytes: %w", h.slots, h.fileLength, ErrFormat)
	case h.fileLength > uint64(len(b)):
		return nil, fmt.Errorf("%d of %d bytes are there: %w", len(b), h.fileLength, ErrTruncated)
	case h.generation == 0:
		return nil, fmt.Errorf("generation is 0: %w", ErrFormat)
	}
	return &deviceView{
		b:     b,
		hdr:   hdr,
		fixed: *h,
		slots: overlay[deviceSlotMem](b, deviceHeaderSize, h.slots),
	}, nil
}

// ended reports whether a later writer has taken over from the segment's.
func (v *deviceView) ended() bool { return atomic.LoadInt64(&v.hdr.endedAt) != 0 }

// total returns the total of one of the words, which are in the slot, or in the words file that it names.
func (s *deviceSlotMem) total(words *[2]uint64, which int) (uint64, error) {
	for range maxTries {
		seen := atomic.LoadUint64(&s.seen[which]) // barrier seen-acquire
		if total, ok, err := s.above(words, seen, which); ok {
			return total, err
		}
	}
	return 0, ErrBusy
}

// above returns the total: seen plus the distance that the word has moved since. ok is false if the writer has changed seen
// meanwhile.
//
// A distance is less than a round, so it is right only if the word has moved by less than a round since seen was stored. The
// writer stores a new seen once per quarter of a round. The second look at seen comes after the load of the word, which is an
// acquire: if seen has not changed, the word we read was at most a round above it.
func (s *deviceSlotMem) above(words *[2]uint64, seen uint64, which int) (total uint64, ok bool, err error) {
	word := atomic.LoadUint64(&words[which]) // barrier word-acquire: the word before the second look at seen
	if atomic.LoadUint64(&s.seen[which]) != seen {
		return 0, false, nil
	}
	limit, shift := atomic.LoadUint64(&s.maxValue), atomic.LoadUint64(&s.shift[which])
	if word > limit || shift > limit {
		return 0, true, ErrFormat
	}
	return seen + wrapDistance(wordOf(seen, shift, limit), word, limit), true, nil
}

// The words count modulo limit + 1. For the largest limit that is 2^64, where the sum limit + 1 overflows to 0, and uint64
// arithmetic wraps around at the right place by itself.

// wordOf returns the word of a total: (total + shift) mod (limit + 1). shift must be at most limit.
func wordOf(total, shift, limit uint64) uint64 {
	if limit == 1<<64-1 {
		return total + shift
	}
	n := limit + 1
	if total %= n; total >= n-shift {
		return total - (n - shift)
	}
	return total + shift
}

// shiftOf returns the shift with which word means total.
func shiftOf(word, total, limit uint64) uint64 {
	if limit == 1<<64-1 {
		return word - total
	}
	return wrapDistance(total%(limit+1), word, limit)
}

// wrapDistance returns how far a word counts from from to to.
func wrapDistance(from, to, limit uint64) uint64 {
	if to < from {
		return to - from + (limit + 1)
	}
	return to - from
}
