package flexio

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
)

// Compression is the way in which a device compresses the entries of a ring.
type Compression uint8

// The ways of compression. With each, a block of n completions fills the n slots that they would
// fill alone, so the ring goes on behind it.
const (
	// Uncompressed: one slot, one completion. The owner bit says that the device has written it.
	Uncompressed Compression = iota
	// Basic: a title whose format is Compressed and whose byte_cnt is n, an array
	// of eight mini-CQEs in the slot behind it, the next in the eighth slot from
	// the title on, and so on (Linux mlx5 en_rx.c, DPDK mlx5_rx_poll_len).
	Basic
	// Enhanced: the completion before the block is its title. A block has up to seven
	// mini-CQEs in one slot. In place of the owner bit, a counter of passes says that the
	// device has written a slot; it lies where other rings have the signature (UCX ib_mlx5.c).
	Enhanced
)

// miniArray is the number of mini-CQEs in a slot under basic compression.
const miniArray = 8

// ErrRing: the memory or the options cannot be a ring.
var ErrRing = errors.New("no completion queue ring")

// ErrCorrupt: the ring holds an entry that no device writes. The walk cannot go on.
var ErrCorrupt = errors.New("ring is corrupt")

// RingOptions describe a ring. The zero value is a ring of plain 64-byte entries.
type RingOptions struct {
	EntrySize   int // 64 or 128, of which the second half is the CQE64; 0 means 64
	Compression Compression
	// Format is the content of the first half of a responder's mini-CQE: MiniHash, MiniCsum or
	// MiniCsumStrIdx. Under the other formats the byte count also holds parts of other fields.
	Format CQECompFormat
	// Expand has Next write each completion of a block under basic compression back to its slot, as
	// the device would have written it alone. Another consumer of the ring, as ibv_poll_cq of
	// libmlx5, can then read the entries that Next has returned.
	Expand bool
}

// Ring walks the completion queue ring of a device as its consumer: it follows the owner bit,
// expands compressed entries and counts. It belongs to one goroutine at a time. WQE counters of a
// block are taken as counters of a send queue or a cyclic receive queue.
//
// It writes into the ring where the device's protocol asks consumers to (the owner bytes
// that mini-CQEs were written over), and never the doorbell record: its owner does, with
// [Ring.Consumed], before the ring is full.
type Ring struct {
	mem       []byte
	size      int // of an entry
	log       int // of the number of entries
	comp      Compression
	format    CQECompFormat
	writeBack bool   // RingOptions.Expand
	ci        uint32 // consumer index: completions taken, mod 2^32
	failed    error  // once the ring is corrupt

	// The block that is being expanded, or the last one.
	title   CQE64  // its title; between blocks the last completion
	titled  bool   // title is set
	block   uint32 // the completion at which it began
	left    uint32 // completions of the block that were not taken yet
	taken   uint32 // completions of the block that were taken
	minis   [64]byte
	counter uint16 // wqe_counter of the block's first completion
}

// NewRing walks mem, which holds a power of two of entries and stays mapped as long as the ring is
// used. Call [Ring.Init] before the device writes its first entry, unless the creator of the queue
// has initialised the memory in the same way.
func NewRing(mem []byte, o RingOptions) (*Ring, error) {
	if o.EntrySize == 0 {
		o.EntrySize = 64
	}
	if o.EntrySize != 64 && o.EntrySize != 128 {
		return nil, fmt.Errorf("%w: entries of %d bytes: there are such of 64 and of 128", ErrRing, o.EntrySize)
	}
	log, ok := logEntries(len(mem), o.EntrySize)
	if !ok {
		return nil, fmt.Errorf("%w: %d bytes are not a power of two of entries of %d, at most 2^24", ErrRing, len(mem), o.EntrySize)
	}
	if !aligned(mem) {
		return nil, fmt.Errorf("%w: memory is not aligned to 64 bytes", ErrRing)
	}
	if o.Compression > Enhanced {
		return nil, fmt.Errorf("%w: compression %d is unknown", ErrRing, o.Compression)
	}
	if f := o.Format; f != MiniHash && f != MiniCsum && f != MiniCsumStrIdx {
		return nil, fmt.Errorf("%w: mini-CQEs of format %s are not expanded: create the CQ with HASH, CSUM or CSUM_STRIDX", ErrRing, f)
	}
	return &Ring{
		mem:       mem,
		size:      o.EntrySize,
		log:       log,
		comp:      o.Compression,
		format:    o.Format,
		writeBack: o.Expand,
	}, nil
}

// logEntries returns the logarithm of the number of entries of size in n bytes. The device's
// consumer index has 24 bits, so a ring has at most 2^24 entries.
func logEntries(n, size int) (log int, ok bool) {
	count := n / size
	return bits.TrailingZeros(uint(count)), bits.OnesCount(uint(count)) == 1 && count*size == n && count <= 1<<24
}

// Init writes the initial content of a ring: entries that the device has not written. Call it before
// the device knows the ring.
func (r *Ring) Init() {
	for i := range uint32(1) << r.log {
		e := r.entry(i)
		e[62], e[63] = 0xff, byte(OpInvalidCQE)<<4
	}
}

// Consumed returns the consumer index, for the doorbell record: the number of completions that were
// taken, mod 2^32, of which the device looks at the lower 24 bits.
func (r *Ring) Consumed() uint32 { return r.ci }

// skip goes on at completion i. A block that was begun ends there, and has left no title.
func (r *Ring) skip(i uint32) {
	r.ci = i
	r.left = 0
	r.titled = false
}

// entry returns the CQE64 of slot i, which an entry of 128 bytes has in its second half.
func (r *Ring) entry(i uint32) []byte {
	at := int(i&(1<<r.log-1))*r.size + r.size - 64
	return r.mem[at : at+64 : at+64]
}

// pass returns the number of passes over the ring before completion i.
func (r *Ring) pass(i uint32) uint32 { return i >> r.log }

// ready reports whether the device has written slot r.ci in this pass. The load of its
// last word is an acquire: the rest of the entry is loaded after it.
func (r *Ring) ready(e []byte) bool {
	last := loadLast(e)
	own := OpOwn(last)
	if r.comp == Enhanced {
		return uint8(last>>8) == uint8(r.pass(r.ci))
	}
	return own.Opcode() != OpInvalidCQE && own.Owner() == uint8(r.pass(r.ci)&1)
}

// Next takes the next completion into dst, expanded where it was compressed, or
// reports that the device has not written it yet. It allocates nothing. After
// ErrCorrupt each call returns it again.
func (r *Ring) Next(dst *CQE64) (bool, error) {
	if r.failed != nil {
		return false, r.failed
	}
	if r.left > 0 {
		r.expand(dst)
		return true, nil
	}

	e := r.entry(r.ci)
	if !r.ready(e) {
		return false, nil
	}

	own := OpOwn(e[63])
	if r.comp == Uncompressed || own.Format() != Compressed {
		dst.load(e)
		r.title = *dst
		r.titled = true
		r.counter = dst.WQECounter
		r.taken = 1
		r.ci++
		return true, nil
	}

	if err := r.begin(e); err != nil {
		r.failed = fmt.Errorf("completion %d: %w: %w", r.ci, ErrCorrupt, err)
		return false, r.failed
	}
	r.expand(dst)
	return true, nil
}

// begin starts the block at the consumer index, whose slot is e.
func (r *Ring) begin(e []byte) error {
	r.block = r.ci
	if r.comp == Enhanced {
		return r.beginEnhanced(e)
	}

	r.title.load(e)
	r.counter = r.title.WQECounter
	r.left = r.title.ByteCnt
	r.taken = 0
	if r.left < 2 || r.left > 1<<r.log {
		return fmt.Errorf("a block of %d completions in a ring of %d", r.left, 1<<r.log)
	}
	return nil
}

// beginEnhanced starts a block of enhanced compression, whose title was taken before.
func (r *Ring) beginEnhanced(e []byte) error {
	if !r.titled {
		return errors.New("mini-CQEs without a title")
	}

	// The block goes on where the title, or the block before it, ended.
	r.counter += uint16(r.taken)
	r.left = uint32(e[63]>>4) + 1
	r.taken = 0
	if r.left > 7 {
		return fmt.Errorf("%d mini-CQEs in a slot", r.left)
	}
	copy(r.minis[:], e)
	return nil
}

// expand makes the next completion of the block: the title's fields, and over them the fields of
// its mini-CQE.
func (r *Ring) expand(dst *CQE64) {
	at := r.taken
	if r.comp == Basic && at%miniArray == 0 {
		slot := r.block + at
		if at == 0 {
			slot++ // the title holds no array
		}
		copy(r.minis[:], r.entry(slot))
	}
	mini := miniCQE(r.minis[at%miniArray*8:][:8])

	*dst = r.title
	dst.ByteCnt = mini.byteCnt()
	dst.WQECounter = r.counter + uint16(at)
	switch op := r.title.OpOwn.Opcode(); {
	case op == OpReq:
		dst.WQECounter, dst.SopRdrop = mini.wqeCounter(), mini.sWQEOpcode()
	case r.format == MiniHash:
		binary.BigEndian.PutUint32(dst.Rsvd00[12:], mini.hash()) // rx_hash_res
	case r.format == MiniCsum:
		dst.CsumOK, _ = mini.checksum()
	default:
		dst.CsumOK, dst.WQECounter = mini.checksum()
	}
	dst.OpOwn = OpOwn(uint8(r.title.OpOwn)&^0x0d | uint8(r.pass(r.ci)&1)) // as if it had come alone

	// Free the slot. Mini-CQEs were written over the byte that says whose it is, or the device left
	// that byte as it was many passes ago: a later pass could take either for a new entry.
	switch e := r.entry(r.ci); {
	case r.writeBack && r.comp == Basic:
		dst.store(e)
	case r.comp == Basic:
		e[63] = byte(OpInvalidCQE) << 4
	default:
		e[62] = uint8(r.pass(r.ci))
	}

	r.taken++
	r.left--
	r.ci++
}
