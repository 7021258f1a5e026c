package flexio

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
)

// Compression of the entries in a ring.
type Compression uint8

// How a device compresses entries. Either way a block of n completions fills the n
// slots that they would fill alone, so the ring goes on behind it.
const (
	// Uncompressed: one slot, one completion, told by the owner bit.
	Uncompressed Compression = iota
	// Basic: a title whose format is Compressed and whose byte_cnt is n, an array
	// of eight mini-CQEs in the slot behind it, the next in the eighth slot from
	// the title on, and so on (Linux mlx5 en_rx.c, DPDK mlx5_rx_poll_len).
	Basic
	// Enhanced: the completion before the block is its title. Blocks of up to seven
	// mini-CQEs, each in one slot, and a counter of passes in the place of the
	// signature in place of the owner bit (UCX ib_mlx5.c).
	Enhanced
)

// miniArray is how many mini-CQEs fit a slot under basic compression.
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
	// Expand has Next write each completion of a block under basic compression back to its slot, as the device would
	// have written it alone. Another consumer of the same ring, as ibv_poll_cq of libmlx5, can then read the entries that Next
	// has returned.
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
	mem     []byte
	size    int // of an entry
	log     int // of the number of entries
	comp    Compression
	format  CQECompFormat
	alone   bool   // RingOptions.Expand
	ci      uint32 // consumer index: completions taken, mod 2^32
	failed  error
	title   CQE64 // of the block that is being expanded, or the last completion
	titled  bool
	block   uint32 // the slot of the block's first completion
	left    uint32 // completions of the block that were not taken yet
	taken   uint32 // and that were
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
	return &Ring{mem: mem, size: o.EntrySize, log: log, comp: o.Compression, format: o.Format, alone: o.Expand}, nil
}

// logEntries is the logarithm of how many entries of size make up n bytes. The device's
// index of the consumer has 24 bits.
func logEntries(n, size int) (log int, ok bool) {
	count := n / size
	return bits.TrailingZeros(uint(count)), bits.OnesCount(uint(count)) == 1 && count*size == n && count <= 1<<24
}

// Init writes the initial content of a ring: entries that the device has not written.
func (r *Ring) Init() {
	for i := range uint32(1) << r.log {
		e := r.entry(i)
		e[62], e[63] = 0xff, byte(OpInvalidCQE)<<4
	}
}

// Consumed is the consumer index, for the doorbell record: how many completions were
// taken, mod 2^32, of which the device looks at the lower 24 bits.
func (r *Ring) Consumed() uint32 { return r.ci }

// skip goes on at completion i.
func (r *Ring) skip(i uint32) { r.ci, r.left, r.titled = i, 0, false }

// entry is the CQE64 of slot i.
func (r *Ring) entry(i uint32) []byte {
	at := int(i&(1<<r.log-1))*r.size + r.size - 64
	return r.mem[at : at+64 : at+64]
}

// pass is how often the ring was gone through before completion i.
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
// reports that the device has not written it yet. It allocates nothing.
func (r *Ring) Next(dst *CQE64) (bool, error) {
	if r.failed != nil {
		return false, r.failed
	}
	if r.left > 0 {
		return true, r.expand(dst)
	}
	e := r.entry(r.ci)
	if !r.ready(e) {
		return false, nil
	}
	own := OpOwn(e[63])
	if r.comp == Uncompressed || own.Format() != Compressed {
		dst.load(e)
		r.title, r.titled = *dst, true
		r.counter, r.taken = dst.WQECounter, 1
		r.ci++
		return true, nil
	}
	if err := r.begin(e); err != nil {
		r.failed = fmt.Errorf("completion %d: %w: %w", r.ci, ErrCorrupt, err)
		return false, r.failed
	}
	return true, r.expand(dst)
}

// begin starts the block at the consumer index.
func (r *Ring) begin(e []byte) error {
	r.block = r.ci
	if r.comp == Enhanced {
		if !r.titled {
			return errors.New("mini-CQEs without a title")
		}
		// The block goes on where the title, or the block before it, ended.
		r.counter += uint16(r.taken)
		r.left, r.taken = uint32(e[63]>>4)+1, 0
		if r.left > 7 {
			return fmt.Errorf("%d mini-CQEs in a slot", r.left)
		}
		copy(r.minis[:], e)
		return nil
	}
	r.title.load(e)
	r.counter, r.left, r.taken = r.title.WQECounter, r.title.ByteCnt, 0
	if r.left < 2 || r.left > 1<<r.log {
		return fmt.Errorf("a block of %d completions in a ring of %d", r.left, 1<<r.log)
	}
	return nil
}

// expand makes the next completion of the block: the title's fields, and over them the fields of
// its mini-CQE.
func (r *Ring) expand(dst *CQE64) error {
	at := r.taken
	if r.comp == Basic && at%miniArray == 0 {
		slot := r.block + at
		if at == 0 {
			slot++ // the title holds no array
		}
		copy(r.minis[:], r.entry(slot))
	}
	mini := MiniCQE(r.minis[at%miniArray*8:][:8])
	*dst = r.title
	dst.ByteCnt = mini.ByteCnt()
	dst.WQECounter = r.counter + uint16(at)
	switch op := r.title.OpOwn.Opcode(); {
	case op == OpReq:
		dst.WQECounter, dst.SopRdrop = mini.WQECounter(), mini.SWQEOpcode()
	case r.format == MiniHash:
		copy(dst.Rsvd00[12:16], mini[:4]) // rx_hash_res
	case r.format == MiniCsum:
		dst.CsumOK, _ = mini.Checksum()
	default:
		dst.CsumOK, dst.WQECounter = mini.Checksum()
	}
	dst.OpOwn = OpOwn(uint8(r.title.OpOwn)&^0x0d | uint8(r.pass(r.ci)&1)) // as if it had come alone
	// Mini-CQEs were written over the byte that says whose the slot is, or the
	// device left it as it was many passes ago: either could be read as an entry to come.
	switch e := r.entry(r.ci); {
	case r.alone && r.comp == Basic:
		dst.store(e)
	case r.comp == Basic:
		e[63] = byte(OpInvalidCQE) << 4
	default:
		e[62] = uint8(r.pass(r.ci))
	}
	r.taken++
	r.left--
	r.ci++
	return nil
}

// load is Decode for the walk: spelt out, it takes 18 ns where reflection takes 670.
func (c *CQE64) load(e []byte) {
	_ = e[63]
	be := binary.BigEndian
	c.Rsvd00 = [20]byte(e)
	c.CsumOK = be.Uint16(e[0x14:])
	c.Rsvd22 = [2]byte(e[0x16:])
	c.Rsvd24 = [8]byte(e[0x18:])
	c.SRQNUidx = be.Uint32(e[0x20:])
	c.ImmInvalPkey = be.Uint32(e[0x24:])
	c.Rsvd40 = be.Uint32(e[0x28:])
	c.ByteCnt = be.Uint32(e[0x2c:])
	c.Rsvd48 = be.Uint32(e[0x30:])
	c.HWErrSyndrome, c.Rsvd50, c.VendorErrSynd, c.Syndrome = e[0x34], e[0x35], e[0x36], Syndrome(e[0x37])
	c.SopRdrop, c.QPN24 = e[0x38], [3]byte(e[0x39:])
	c.WQECounter = be.Uint16(e[0x3c:])
	c.Signature, c.OpOwn = e[0x3e], OpOwn(e[0x3f])
}

// store is the inverse of load.
func (c *CQE64) store(e []byte) {
	_ = e[63]
	be := binary.BigEndian
	copy(e, c.Rsvd00[:])
	be.PutUint16(e[0x14:], c.CsumOK)
	copy(e[0x16:], c.Rsvd22[:])
	copy(e[0x18:], c.Rsvd24[:])
	be.PutUint32(e[0x20:], c.SRQNUidx)
	be.PutUint32(e[0x24:], c.ImmInvalPkey)
	be.PutUint32(e[0x28:], c.Rsvd40)
	be.PutUint32(e[0x2c:], c.ByteCnt)
	be.PutUint32(e[0x30:], c.Rsvd48)
	e[0x34], e[0x35], e[0x36], e[0x37] = c.HWErrSyndrome, c.Rsvd50, c.VendorErrSynd, byte(c.Syndrome)
	e[0x38] = c.SopRdrop
	copy(e[0x39:], c.QPN24[:])
	be.PutUint16(e[0x3c:], c.WQECounter)
	e[0x3e], e[0x3f] = c.Signature, byte(c.OpOwn)
}

// MiniCQE is a completion in 8 bytes: the fields that differ from the title, then the byte count
// (mlx5_mini_cqe8 of Linux mlx5/device.h and of DPDK mlx5_prm.h; neither mlx5dv.h nor the reference
// has it). The meaning of the first half depends on the queue and on the format of the CQ.
type MiniCQE [8]byte

// WQECounter is the index of the WQE that a requester's mini-CQE completes.
func (m MiniCQE) WQECounter() uint16 { return binary.BigEndian.Uint16(m[0:]) }

// SWQEOpcode is the opcode of that WQE.
func (m MiniCQE) SWQEOpcode() uint8 { return m[2] }

// Hash is the RSS hash, of format hash.
func (m MiniCQE) Hash() uint32 { return binary.BigEndian.Uint32(m[0:]) }

// Checksum and the index of the stride, of format checksum and stride.
func (m MiniCQE) Checksum() (sum, stride uint16) {
	return binary.BigEndian.Uint16(m[0:]), binary.BigEndian.Uint16(m[2:])
}

// ByteCnt is the number of bytes.
func (m MiniCQE) ByteCnt() uint32 { return binary.BigEndian.Uint32(m[4:]) }
