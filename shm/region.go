package shm

import (
	"fmt"
	"math/bits"
	"sync/atomic"
)

// maxHistory bounds the ring, so that every offset is far below 2^63.
const maxHistory = 1 << 28

// MaxCounters is the highest number of counters in a mirror, of both classes together.
const MaxCounters = maxSegments * SegmentLen

// ringRecords rounds the capacity of the history up to a power of two.
func ringRecords(history int) (uint32, error) {
	switch {
	case history < 0 || history > maxHistory:
		return 0, fmt.Errorf("history of %d records: must be 0 to %d: %w", history, maxHistory, ErrInvalid)
	case history == 0:
		return 0, nil
	}
	return 1 << max(1, bits.Len32(uint32(history)-1)), nil // at least 2 records: see Cursor.next for why
}

// ringLength is the length of the history ring in the file.
func ringLength(history uint32) uint64 {
	return (uint64(history)*historySize + sectionAlign - 1) / sectionAlign * sectionAlign
}

// segmentOffset returns where segment n starts, which is also where a file of n segments ends.
func segmentOffset(history, n uint32) uint64 {
	return headerSize + ringLength(history) + uint64(n)*segmentSize
}

// format writes the immutable header into b, which must be zero. The version stays 0, which means not ready, until ready.
func format(b []byte, history uint32, file uint64, createdWall int64) (fixedMem, error) {
	h, err := overlayHeader(b)
	if err != nil {
		return fixedMem{}, err
	}
	copy(h.magic[:], Magic)
	h.byteOrder = byteOrder
	h.length = headerSize
	h.clock = clockMono
	h.segmentLength = segmentSize
	h.createdWall = createdWall
	h.segmentCounters = SegmentLen
	h.blockLen = BlockLen
	h.history = history
	h.file = file
	h.checksum = h.fixedMem.sum()
	return h.fixedMem, nil
}

// ready stores the version, with release: a reader that sees it sees the rest of the header too.
func (v *view) ready() { atomic.StoreUint32(&v.hdr.version, Version) }

// sum returns the checksum that the header has once it is ready.
func (f fixedMem) sum() uint64 {
	f.version = Version
	return fnv64(bytesOf(&f)[:hdrChecksum])
}

// foreign returns the error for a file that never was a mirror.
func foreign(first []byte) error {
	return fmt.Errorf("starts with %q, not %q: %w", first, Magic, ErrFormat)
}

func tooShort(length int64) error {
	return fmt.Errorf("%d bytes are shorter than a header: %w", length, ErrTruncated)
}

// fixed copies the immutable header once, and checks the copy. A hostile writer may change the header at any time, so no other
// code may read these words in the file.
func (h *headerMem) fixed() (f fixedMem, err error) {
	atomic.LoadUint32(&h.version) // with acquire: the writer stores the version last, so if it is not 0, the rest is there
	copyWords(wordsAt(&f), wordsAt(&h.fixedMem))

	// Check magic, version and byte order first: in another version the words after them may mean anything.
	switch {
	case string(f.magic[:]) != Magic:
		return f, foreign(f.magic[:])
	case f.version == 0:
		return f, ErrNotReady
	case f.byteOrder == 0x04030201:
		return f, fmt.Errorf("written on a machine of the other byte order: %w", ErrFormat)
	case f.version != Version:
		return f, fmt.Errorf("format version %d, this program knows %d: %w", f.version, Version, ErrFormat)
	case f.byteOrder != byteOrder:
		return f, fmt.Errorf("byte order mark %#x: %w", f.byteOrder, ErrFormat)
	case f.incompat != 0:
		return f, fmt.Errorf("needs features %#x that this program does not know: %w", f.incompat, ErrFormat)
	case f.length != headerSize || f.segmentLength != segmentSize || f.segmentCounters != SegmentLen || f.blockLen != BlockLen:
		return f, fmt.Errorf("header of %d bytes, segments of %d bytes and %d counters, blocks of %d: %w",
			f.length, f.segmentLength, f.segmentCounters, f.blockLen, ErrFormat)
	case f.clock != clockMono:
		return f, fmt.Errorf("clock %d is unknown: %w", f.clock, ErrFormat)
	}

	if sum := f.sum(); sum != f.checksum {
		return f, fmt.Errorf("header checksum %#x, computed %#x: %w", f.checksum, sum, ErrFormat)
	}
	if f.history > maxHistory || f.history&(f.history-1) != 0 || f.history == 1 {
		return f, fmt.Errorf("history of %d records: %w", f.history, ErrFormat)
	}
	if f.file == 0 {
		return f, fmt.Errorf("file word is 0: %w", ErrFormat)
	}
	return f, nil
}

func fnv64(b []byte) uint64 {
	h := uint64(0xcbf29ce484222325)
	for _, c := range b {
		h = (h ^ uint64(c)) * 0x100000001b3
	}
	return h
}

// identity packs the state and generation of an entry.
func identity(state, generation uint32) uint64 { return uint64(state)<<32 | uint64(generation) }

func epochOf(seq uint64) uint64 { return seq >> epochShift }

// nextSeq returns the sequence word after s. free raises the epoch too, which tells readers that a counter was freed.
func nextSeq(s uint64, free bool) uint64 {
	e := epochOf(s)
	if free && e < epochMax {
		e++
	}
	return e<<epochShift | (s+1)&countMask
}

// segmentOffset returns where segment n is in the file.
func (v *view) segmentOffset(n int) uint64 { return segmentOffset(v.fixed.history, uint32(n)) }

func (v *view) entryOffset(i uint32) uint64 {
	return v.segmentOffset(int(i/SegmentLen)) + uint64(i%SegmentLen)*entrySize
}
