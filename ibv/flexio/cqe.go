package flexio

import (
	"encoding/binary"
	"fmt"
)

// CQE64 is flexio_dev_cqe64, a completion queue entry of 64 bytes, for hot paths. mlx5dv.h has the same entry,
// mlx5_cqe64, with other names. Some fields are reserved here and not there: wqe_id, the flags of the headers, the
// timestamp and more. [Decode] reads those too.
type CQE64 struct {
	rsvd00        [20]byte
	CsumOK        uint16 // the checksum itself, not whether it is correct
	rsvd22        [2]byte
	rsvd24        [8]byte
	SRQNUidx      uint32
	ImmInvalPkey  uint32
	rsvd40        uint32
	ByteCnt       uint32
	rsvd48        uint32 // upper half of the timestamp
	HWErrSyndrome uint8  // this and the next three: lower half of the timestamp unless it is an error
	rsvd50        uint8
	VendorErrSynd uint8
	Syndrome      Syndrome
	SopRdrop      uint8 // the reference calls the word of SopRdrop and QPN24 qpn
	QPN24         [3]byte
	WQECounter    uint16
	Signature     uint8
	OpOwn         OpOwn
}

// QPN returns the number of the QP (24 bits).
func (c *CQE64) QPN() uint32 {
	return uint32(c.QPN24[0])<<16 | uint32(c.QPN24[1])<<8 | uint32(c.QPN24[2])
}

// Err returns the entry's error, a [*CompletionError], or nil. It depends on the opcode: without an error
// opcode the bytes of the syndromes belong to the timestamp.
func (c *CQE64) Err() error {
	if !c.OpOwn.Opcode().IsError() {
		return nil
	}
	return &CompletionError{
		Opcode:   c.OpOwn.Opcode(),
		Syndrome: c.Syndrome,
		Vendor:   c.VendorErrSynd,
		HW:       c.HWErrSyndrome,
	}
}

// Timestamp returns the time at which the device wrote the entry, in ticks of its clock. An entry with an error
// has none, so it returns 0.
func (c *CQE64) Timestamp() uint64 {
	if c.OpOwn.Opcode().IsError() {
		return 0
	}
	return uint64(c.rsvd48)<<32 |
		uint64(c.HWErrSyndrome)<<24 |
		uint64(c.rsvd50)<<16 |
		uint64(c.VendorErrSynd)<<8 |
		uint64(c.Syndrome)
}

// load decodes an entry for the walk of a Ring, without a table.
func (c *CQE64) load(e []byte) {
	_ = e[63]
	be := binary.BigEndian
	c.rsvd00 = [20]byte(e)
	c.CsumOK = be.Uint16(e[0x14:])
	c.rsvd22 = [2]byte(e[0x16:])
	c.rsvd24 = [8]byte(e[0x18:])
	c.SRQNUidx = be.Uint32(e[0x20:])
	c.ImmInvalPkey = be.Uint32(e[0x24:])
	c.rsvd40 = be.Uint32(e[0x28:])
	c.ByteCnt = be.Uint32(e[0x2c:])
	c.rsvd48 = be.Uint32(e[0x30:])
	c.HWErrSyndrome = e[0x34]
	c.rsvd50 = e[0x35]
	c.VendorErrSynd = e[0x36]
	c.Syndrome = Syndrome(e[0x37])
	c.SopRdrop = e[0x38]
	c.QPN24 = [3]byte(e[0x39:])
	c.WQECounter = be.Uint16(e[0x3c:])
	c.Signature = e[0x3e]
	c.OpOwn = OpOwn(e[0x3f])
}

// store is the inverse of load.
func (c *CQE64) store(e []byte) {
	_ = e[63]
	be := binary.BigEndian
	copy(e, c.rsvd00[:])
	be.PutUint16(e[0x14:], c.CsumOK)
	copy(e[0x16:], c.rsvd22[:])
	copy(e[0x18:], c.rsvd24[:])
	be.PutUint32(e[0x20:], c.SRQNUidx)
	be.PutUint32(e[0x24:], c.ImmInvalPkey)
	be.PutUint32(e[0x28:], c.rsvd40)
	be.PutUint32(e[0x2c:], c.ByteCnt)
	be.PutUint32(e[0x30:], c.rsvd48)
	e[0x34] = c.HWErrSyndrome
	e[0x35] = c.rsvd50
	e[0x36] = c.VendorErrSynd
	e[0x37] = byte(c.Syndrome)
	e[0x38] = c.SopRdrop
	copy(e[0x39:], c.QPN24[:])
	be.PutUint16(e[0x3c:], c.WQECounter)
	e[0x3e] = c.Signature
	e[0x3f] = byte(c.OpOwn)
}

// OpOwn is the last byte of an entry: opcode in bits 7..4, format in 3..2, solicited event in 1, owner in 0. The
// reference only names opcode and owner.
type OpOwn uint8

// Opcode returns the kind of the completed work.
func (o OpOwn) Opcode() Opcode { return Opcode(o >> 4) }

// Format returns where inline data is, or that the entry is compressed.
func (o OpOwn) Format() Format { return Format(o >> 2 & 3) }

// Solicited returns the solicited event bit.
func (o OpOwn) Solicited() bool { return o&2 != 0 }

// Owner returns the owner bit. The device flips it with every pass over the ring.
func (o OpOwn) Owner() uint8 { return uint8(o & 1) }

// Opcode is the kind of the completed work in a CQE (mlx5dv.h MLX5_CQE_*).
type Opcode uint8

// The kinds of completed work.
const (
	OpReq        Opcode = 0  // send request
	OpRespWrImm  Opcode = 1  // arrival of an RDMA write with immediate
	OpRespSend   Opcode = 2  // arrival of a send
	OpRespImm    Opcode = 3  // arrival of a send with immediate
	OpRespInv    Opcode = 4  // arrival of a send with invalidate
	OpResize     Opcode = 5  // the ring was resized
	OpNoPacket   Opcode = 6  // nothing was received
	OpSigErr     Opcode = 12 // a signature did not match
	OpReqErr     Opcode = 13 // failed send request
	OpRespErr    Opcode = 14 // failed receive request
	OpInvalidCQE Opcode = 15 // initial content of an unwritten entry
)

// IsError reports whether the syndromes of an entry with this opcode are valid.
func (o Opcode) IsError() bool { return o == OpReqErr || o == OpRespErr }

var opcodeNames = map[Opcode]string{
	OpReq:        "REQ",
	OpRespWrImm:  "RESP_WR_IMM",
	OpRespSend:   "RESP_SEND",
	OpRespImm:    "RESP_SEND_IMM",
	OpRespInv:    "RESP_SEND_INV",
	OpResize:     "RESIZE_CQ",
	OpNoPacket:   "NO_PACKET",
	OpSigErr:     "SIG_ERR",
	OpReqErr:     "REQ_ERR",
	OpRespErr:    "RESP_ERR",
	OpInvalidCQE: "INVALID",
}

func (o Opcode) String() string {
	if s, ok := opcodeNames[o]; ok {
		return s
	}
	return fmt.Sprintf("Opcode(%d)", uint8(o))
}

// Format is the place of inline data (mlx5dv.h MLX5_INLINE_*), or compression (DPDK mlx5_prm.h
// MLX5_COMPRESSED).
type Format uint8

// The formats of an entry.
const (
	NoInline   Format = 0
	Inline32   Format = 1 // up to 32 bytes of payload are in the entry
	Inline64   Format = 2 // up to 64 bytes of payload are in front of the entry
	Compressed Format = 3
)

// Syndrome is the cause of an error (mlx5dv.h MLX5_CQE_SYNDROME_*).
type Syndrome uint8

// The causes of errors.
const (
	SyndromeLocalLength      Syndrome = 0x01
	SyndromeLocalQPOp        Syndrome = 0x02
	SyndromeLocalProt        Syndrome = 0x04
	SyndromeWRFlush          Syndrome = 0x05
	SyndromeMWBind           Syndrome = 0x06
	SyndromeBadResp          Syndrome = 0x10
	SyndromeLocalAccess      Syndrome = 0x11
	SyndromeRemoteInvalReq   Syndrome = 0x12
	SyndromeRemoteAccess     Syndrome = 0x13
	SyndromeRemoteOp         Syndrome = 0x14
	SyndromeTransportRetries Syndrome = 0x15
	SyndromeRNRRetries       Syndrome = 0x16
	SyndromeRemoteAborted    Syndrome = 0x22
)

var syndromeNames = map[Syndrome]string{
	SyndromeLocalLength:      "local length",
	SyndromeLocalQPOp:        "local QP operation",
	SyndromeLocalProt:        "local protection",
	SyndromeWRFlush:          "work request flushed",
	SyndromeMWBind:           "memory window bind",
	SyndromeBadResp:          "bad response",
	SyndromeLocalAccess:      "local access",
	SyndromeRemoteInvalReq:   "remote invalid request",
	SyndromeRemoteAccess:     "remote access",
	SyndromeRemoteOp:         "remote operation",
	SyndromeTransportRetries: "transport retries exceeded",
	SyndromeRNRRetries:       "RNR retries exceeded",
	SyndromeRemoteAborted:    "remote aborted",
}

func (s Syndrome) String() string {
	if t, ok := syndromeNames[s]; ok {
		return t
	}
	return fmt.Sprintf("syndrome %#02x", uint8(s))
}

// CompletionError is the error in a completion queue entry.
type CompletionError struct {
	Opcode   Opcode // OpReqErr or OpRespErr
	Syndrome Syndrome
	Vendor   uint8 // vendor_err_synd, the device's own code
	HW       uint8 // hw_err_syndrome
}

func (e *CompletionError) Error() string {
	return fmt.Sprintf("completing a work request: %s error (vendor %#02x)", e.Syndrome, e.Vendor)
}
