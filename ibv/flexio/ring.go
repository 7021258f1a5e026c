package flexio

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
)

// Compression is how a device compresses the entries of a ring.
type Compression uint8

// The kinds of compression. A block of n completions always takes n slots, as many as the completions would
// take alone. The ring continues behind them.
const (
	// Uncompressed has one completion per slot. The owner bit tells whether the device has written it.
	Uncompressed Compression = iota

	// Basic compression begins a block with a title of format Compressed, whose byte_cnt is n. The next slot
	// contains an array of eight mini-CQEs. The following array is in the eighth slot after the title, and so
	// on (Linux mlx5 en_rx.c, DPDK mlx5_rx_poll_len).
	Basic

	// Enhanced compression uses the completion before the block as its title. A block has up to seven
	// mini-CQEs, all in one slot. Instead of an owner bit, slots have a counter of passes, in the place of the
	// signature of other rings (UCX ib_mlx5.c).
	Enhanced
)

// miniArray is the number of mini-CQEs in a slot under basic compression.
const miniArray = 8

// ErrRing is returned for memory or options that cannot be a ring.
var ErrRing = errors.New("no completion queue ring")

// ErrCorrupt is returned for an entry that no device writes. The walk cannot continue.
var ErrCorrupt = errors.New("ring is corrupt")

// RingOptions describe a ring. The zero value is a ring of plain 64-byte entries.
type RingOptions struct {
	EntrySize   int // 64, or 128 with the CQE64 in the second half; 0 means 64
	Compression Compression

	// Format is the content of the first half of a responder's mini-CQE: MiniHash, MiniCsum or
	// MiniCsumStrIdx. The other formats are not supported, because there the byte count contains parts of
	// other fields.
	Format CQECompFormat

	// Expand makes Next write each completion of a block back to its slot, as if it had come alone. Set it if
	// somebody else consumes the ring too, for example ibv_poll_cq of libmlx5, which can then read all
	// entries returned by Next. It only affects basic compression.
	Expand bool
}

// Ring walks the ring of a completion queue as its consumer: it follows the owner bit, expands compressed entries
// and counts. The WQE counters of a block must be those of a send queue or a cyclic receive queue. Only one
// goroutine at a time may use a Ring.
//
// A Ring writes to the ring only where the device's protocol requires it: it restores owner bytes overwritten by
// mini-CQEs. It never writes the doorbell record. Callers must store [Ring.Consumed] there before the ring is
// full.
type Ring struct {
	mem       []byte
	size      int // of an entry
	log       int // base-2 logarithm of the number of entries
	comp      Compression
	format    CQECompFormat
	writeBack bool   // RingOptions.Expand
	ci        uint32 // consumer index: number of taken completions, mod 2^32
	failed    error  // set if the ring is corrupt

	// The current block, or the last one.
	title   CQE64  // its title; between blocks the last completion
	titled  bool   // title is set
	block   uint32 // consumer index at its beginning
	left    uint32 // completions still to take
	taken   uint32 // completions already taken
	minis   [64]byte
	counter uint16 // wqe_counter of the block's first completion
}

// NewRing returns a Ring over mem, which must have a power of two of entries and stay mapped as long as the Ring
// is used. Call [Ring.Init] before the device writes its first entry, unless the creator of the queue has
// initialized the memory in the same way.
func NewRing(mem []byte, o RingOptions) (*Ring, error) {
	if o.EntrySize == 0 {
		o.EntrySize = 64
	}
	if o.EntrySize != 64 && o.EntrySize != 128 {
		return nil, fmt.Errorf("%w: entries of %d bytes: use 64 or 128", ErrRing, o.EntrySize)
	}
	log, ok := logEntries(len(mem), o.EntrySize)
	if !ok {
		return nil, fmt.Errorf("%w: %d bytes do not hold a power of two of entries of %d bytes, at most 2^24", ErrRing, len(mem), o.EntrySize)
	}
	if !aligned(mem) {
		return nil, fmt.Errorf("%w: memory is not aligned to 64 bytes", ErrRing)
	}
	if o.Compression > Enhanced {
		return nil, fmt.Errorf("%w: compression %d is unknown", ErrRing, o.Compression)
	}
	if f := o.Format; f != MiniHash && f != MiniCsum && f != MiniCsumStrIdx {
		return nil, fmt.Errorf("%w: mini-CQEs of format %d %s are not expanded: create the CQ with HASH, CSUM or CSUM_STRIDX", ErrRing, f, miniNames[uint64(f)])
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

// logEntries returns the base-2 logarithm of the number of entries in n bytes. ok is false if the number is no
// power of two, or exceeds 2^24: the device's consumer index has 24 bits.
func logEntries(n, size int) (log int, ok bool) {
	count := n / size
	return bits.TrailingZeros(uint(count)), bits.OnesCount(uint(count)) == 1 && count*size == n && count <= 1<<24
}

// Init marks all entries as unwritten. Call it before the device gets the ring.
func (r *Ring) Init() {
	for i := range uint32(1) << r.log {
		e := r.entry(i)
		e[62], e[63] = 0xff, byte(OpInvalidCQE)<<4
	}
}

// Consumed returns the consumer index for the doorbell record: the number of taken completions, mod 2^32. The
// device uses the lower 24 bits.
func (r *Ring) Consumed() uint32 { return r.ci }

// skip continues at completion i. It drops the current block, and there is no title for the next one.
func (r *Ring) skip(i uint32) {
	r.ci = i
	r.left = 0
	r.titled = false
}

// entry returns the CQE64 of slot i. It is the second half of an entry of 128 bytes.
func (r *Ring) entry(i uint32) []byte {
	at := int(i&(1<<r.log-1))*r.size + r.size - 64
	return r.mem[at : at+64 : at+64]
}

// pass returns the number of complete passes over the ring before completion i.
func (r *Ring) pass(i uint32) uint32 { return i >> r.log }

// ready reports whether the device has written slot r.ci in this pass. It loads the last word with acquire order,
// so the rest of the entry may be loaded afterwards.
func (r *Ring) ready(e []byte) bool {
	last := loadLast(e)
	own := OpOwn(last)
	if r.comp == Enhanced {
		return uint8(last>>8) == uint8(r.pass(r.ci))
	}
	return own.Opcode() != OpInvalidCQE && own.Owner() == uint8(r.pass(r.ci)&1)
}

// Next takes the next completion and stores it in dst, expanded if it was compressed. It returns false if the device
// has not written it yet. It allocates nothing. After ErrCorrupt each call returns the error again.
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

// begin starts a block at the consumer index, in the slot e.
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

// beginEnhanced starts a block of enhanced compression. Its title is the previous completion.
func (r *Ring) beginEnhanced(e []byte) error {
	if !r.titled {
		return errors.New("mini-CQEs without a title")
	}

	// WQE counters continue where the title, or the previous block, ended.
	r.counter += uint16(r.taken)
	r.left = uint32(e[63]>>4) + 1
	r.taken = 0
	if r.left > 7 {
		return fmt.Errorf("%d mini-CQEs in a slot", r.left)
	}
	copy(r.minis[:], e)
	return nil
}

// expand stores the next completion of the block in dst: a copy of the title, with the fields of its mini-CQE.
func (r *Ring) expand(dst *CQE64) {
	at := r.taken
	if r.comp == Basic && at%miniArray == 0 {
		slot := r.block + at
		if at == 0 {
			slot++ // the first array is in the slot behind the title
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
		binary.BigEndian.PutUint32(dst.rsvd00[12:], mini.hash()) // rx_hash_res
	case r.format == MiniCsum:
		dst.CsumOK, _ = mini.checksum()
	default:
		dst.CsumOK, dst.WQECounter = mini.checksum()
	}
	dst.OpOwn = OpOwn(uint8(r.title.OpOwn)&^0x0d | uint8(r.pass(r.ci)&1)) // as if it had come alone

	// Free the slot by restoring its owner byte. Mini-CQEs may have overwritten the byte, or it may be many
	// passes old, because the device does not write all slots of a block. A later pass could mistake either for
	// a new entry.
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
