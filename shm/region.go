package shm

import (
	"fmt"
	"math/bits"
	"sync/atomic"
)

// geometry is the capacities of a mirror and what follows from them.
type geometry struct {
	counters uint32 // a multiple of BlockLen
	records  uint32
	history  uint32 // 0 or a power of two
}

// Limits keep every product below in 64 bits, and an index in 32.
const (
	maxCounters = 1 << 24
	maxRecords  = 1 << 24
	maxHistory  = 1 << 28
)

// plan rounds the capacities asked for up to what the format knows.
func plan(counters, records, history int) (geometry, error) {
	g := geometry{}
	switch {
	case counters < 0 || counters > maxCounters:
		return g, fmt.Errorf("capacity of %d counters: must be 0 to %d: %w", counters, maxCounters, ErrInvalid)
	case records < 0 || records > maxRecords:
		return g, fmt.Errorf("capacity of %d latency counters: must be 0 to %d: %w", records, maxRecords, ErrInvalid)
	case history < 0 || history > maxHistory:
		return g, fmt.Errorf("history of %d records: must be 0 to %d: %w", history, maxHistory, ErrInvalid)
	}
	g.counters = uint32(counters+BlockLen-1) / BlockLen * BlockLen
	g.records = uint32(records)
	if history > 0 {
		g.history = 1 << max(1, bits.Len32(uint32(history)-1)) // Cursor.next needs 2
	}
	return g, nil
}

// union is the smallest geometry that holds what g and o hold.
func (g geometry) union(o geometry) geometry {
	return geometry{max(g.counters, o.counters), max(g.records, o.records), max(g.history, o.history)}
}

// sections answers the section table and the length of the file.
func (g geometry) sections() (t [sections]sectionMem, length uint64) {
	at := uint64(headerSize)
	put := func(i int, stride, count uint32) {
		if count == 0 {
			return
		}
		n := uint64(stride) * uint64(count)
		t[i] = sectionMem{offset: at, length: n, stride: stride, count: count}
		at = (at + n + sectionAlign - 1) / sectionAlign * sectionAlign
	}
	put(secCatalogue, entrySize, g.counters+g.records)
	put(secBlocks, blockSize, g.counters/BlockLen)
	put(secRecords, recordSize, g.records)
	put(secHistory, historySize, g.history)
	return t, at
}

// format writes the immutable header into b, which is zero and as long as g
// needs, and leaves version 0: not ready.
func format(b []byte, g geometry, createdWall int64) (*view, error) {
	h, err := overlayHeader(b)
	if err != nil {
		return nil, err
	}
	copy(h.magic[:], Magic)
	h.byteOrder, h.length, h.clock = byteOrder, headerSize, clockMono
	h.createdWall = createdWall
	h.counters, h.records, h.history, h.blockLen = g.counters, g.records, g.history, BlockLen
	h.sections, h.fileLength = g.sections()
	h.version = Version
	h.checksum = fnv64(bytesOf(h)[:hdrChecksum])
	h.version = 0
	return overlaySections(b, h)
}

// ready makes a formatted region a mirror.
func (v *view) ready() { atomic.StoreUint32(&v.hdr.version, Version) }

// foreign is what is wrong with a file that never was a mirror.
func foreign(first []byte) error {
	return fmt.Errorf("starts with %q, not %q: %w", first, Magic, ErrFormat)
}

func tooShort(length int64) error {
	return fmt.Errorf("%d bytes are shorter than a header: %w", length, ErrTruncated)
}

// attach validates the header and the section table of b against its length.
// It is the only place where an offset of the file is believed.
func attach(b []byte) (*view, error) {
	h, err := overlayHeader(b)
	if err != nil {
		return nil, err
	}
	version := atomic.LoadUint32(&h.version)
	switch {
	case string(h.magic[:]) != Magic:
		return nil, foreign(h.magic[:])
	case version == 0:
		return nil, ErrNotReady
	case h.byteOrder == 0x04030201:
		return nil, fmt.Errorf("written on a machine of the other byte order: %w", ErrFormat)
	case version != Version:
		return nil, fmt.Errorf("format version %d, this program knows %d: %w", version, Version, ErrFormat)
	case h.byteOrder != byteOrder:
		return nil, fmt.Errorf("byte order mark %#x: %w", h.byteOrder, ErrFormat)
	case h.incompat != 0:
		return nil, fmt.Errorf("needs features %#x that this program does not know: %w", h.incompat, ErrFormat)
	case h.length != headerSize || h.blockLen != BlockLen:
		return nil, fmt.Errorf("header of %d bytes and blocks of %d: %w", h.length, h.blockLen, ErrFormat)
	case h.clock != clockMono:
		return nil, fmt.Errorf("clock %d is unknown: %w", h.clock, ErrFormat)
	}
	if sum := fnv64(bytesOf(h)[:hdrChecksum]); sum != h.checksum {
		return nil, fmt.Errorf("header checksum %#x, computed %#x: %w", h.checksum, sum, ErrFormat)
	}
	if h.fileLength > uint64(len(b)) {
		return nil, fmt.Errorf("%d of %d bytes are there: %w", len(b), h.fileLength, ErrTruncated)
	}
	return overlaySections(b, h)
}

// overlaySections checks the section table of h and lays the structs over b.
func overlaySections(b []byte, h *headerMem) (*view, error) {
	if h.counters > maxCounters || h.counters%BlockLen != 0 || h.records > maxRecords ||
		h.history > maxHistory || h.history&(h.history-1) != 0 {
		return nil, fmt.Errorf("capacities %d, %d, %d: %w", h.counters, h.records, h.history, ErrFormat)
	}
	want, length := geometry{h.counters, h.records, h.history}.sections()
	if h.fileLength < length || h.fileLength > uint64(len(b)) {
		return nil, fmt.Errorf("file length %d, sections end at %d: %w", h.fileLength, length, ErrFormat)
	}
	t := h.sections
	end := uint64(headerSize)
	for i := range want {
		s := t[i]
		if s.count != want[i].count || s.length != want[i].length || s.count != 0 && s.stride != want[i].stride {
			return nil, fmt.Errorf("section %d has %d elements of %d bytes in %d: %w", i, s.count, s.stride, s.length, ErrFormat)
		}
		if s.count == 0 {
			continue
		}
		if s.offset%sectionAlign != 0 || s.offset < end || s.offset > h.fileLength || s.length > h.fileLength-s.offset {
			return nil, fmt.Errorf("section %d lies at %d in a file of %d: %w", i, s.offset, h.fileLength, ErrFormat)
		}
		end = s.offset + s.length
	}
	return &view{
		b:       b,
		hdr:     h,
		table:   t,
		entries: overlay[entryMem](b, t[secCatalogue].offset, t[secCatalogue].count),
		blocks:  overlay[blockMem](b, t[secBlocks].offset, t[secBlocks].count),
		records: overlay[recordMem](b, t[secRecords].offset, t[secRecords].count),
		history: overlay[historyMem](b, t[secHistory].offset, t[secHistory].count),
	}, nil
}

func (v *view) geometry() geometry {
	return geometry{uint32(len(v.blocks)) * BlockLen, uint32(len(v.records)), uint32(len(v.history))}
}

// counters is the capacity in block counters, from the slices: the header's
// word may change under a hostile writer.
func (v *view) counters() uint32 { return uint32(len(v.blocks)) * BlockLen }

// high answers how many blocks and records were ever used, clamped to what is there.
func (v *view) high() (blocks, records int) {
	b := atomic.LoadUint32(&v.hdr.blocksHigh)
	r := atomic.LoadUint32(&v.hdr.recordsHigh)
	return int(min(b, uint32(len(v.blocks)))), int(min(r, uint32(len(v.records))))
}

// eachUsed calls fn with the indices of all slots that were ever used.
func (v *view) eachUsed(fn func(i uint32)) {
	blocks, records := v.high()
	for i := range uint32(blocks) * BlockLen {
		fn(i)
	}
	for i := range uint32(records) {
		fn(v.counters() + i)
	}
}

// seqOf answers the sequence word that index i is published under.
func (v *view) seqOf(i uint32) *uint64 {
	if n := v.counters(); i >= n {
		return &v.records[i-n].seq
	}
	return &v.blocks[i/BlockLen].seq
}

// slotsOf answers the two places where the value of index i may stand.
func (v *view) slotsOf(i uint32) [2]*Value {
	if n := v.counters(); i >= n {
		r := &v.records[i-n]
		return [2]*Value{&r.slots[0], &r.slots[1]}
	}
	b, row := &v.blocks[i/BlockLen], i%BlockLen
	return [2]*Value{&b.copies[0].values[row], &b.copies[1].values[row]}
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

// nextSeq is the sequence word after s, with the epoch raised by free.
func nextSeq(s uint64, free bool) uint64 {
	e := epochOf(s)
	if free && e < epochMax {
		e++
	}
	return e<<epochShift | (s+1)&countMask
}
