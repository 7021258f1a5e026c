package flexio

import (
	"encoding/binary"
	"math/rand/v2"
)

// simRing is the device's side of a ring: it writes completions as the device would
// under a compression.
type simRing struct {
	mem  []byte
	n    uint32 // entries
	size int
	comp Compression
	fmt  CQECompFormat
	pi   uint32 // producer index
}

func (s *simRing) slot(i uint32) []byte {
	at := int(i%s.n)*s.size + s.size - 64
	return s.mem[at : at+64]
}

// one writes a completion that is not compressed.
func (s *simRing) one(c CQE64) {
	c.OpOwn = OpOwn(uint8(c.OpOwn)&^1 | uint8(s.pi/s.n&1))
	if s.comp == Enhanced {
		c.Signature = uint8(s.pi / s.n)
	}
	copy(s.slot(s.pi), entryBytes(c))
	s.pi++
}

// block writes completions that differ from the first in byte count and WQE counter
// alone, as one block. Under Enhanced the first comes alone, as the title.
func (s *simRing) block(run []CQE64) {
	if s.comp == Enhanced {
		s.one(run[0])
		for rest := run[1:]; len(rest) > 0; {
			n := min(len(rest), 7)
			minis := make([]byte, 56)
			for i, c := range rest[:n] {
				copy(minis[8*i:], s.mini(c))
			}
			block, err := Append(nil, "flexio_dev_mini_cqe64", Values{
				"mini_cqe": minis, "validity_iteration_count": uint8(s.pi / s.n), "num_and_type": uint8(n-1)<<4 | uint8(Compressed)<<2,
			})
			if err != nil {
				panic(err)
			}
			copy(s.slot(s.pi), block)
			s.pi += uint32(n)
			rest = rest[n:]
		}
		return
	}
	title := run[0]
	title.ByteCnt = uint32(len(run))
	title.OpOwn = OpOwn(uint8(title.OpOwn) | uint8(Compressed)<<2)
	for at := 0; at < len(run); at += miniArray {
		array := s.slot(s.pi + uint32(max(at, 1)))
		for i, c := range run[at:min(at+miniArray, len(run))] {
			copy(array[8*i:], s.mini(c))
		}
	}
	// The title's owner bit publishes the block.
	title.OpOwn = OpOwn(uint8(title.OpOwn)&^1 | uint8(s.pi/s.n&1))
	copy(s.slot(s.pi), entryBytes(title))
	s.pi += uint32(len(run))
}

func (s *simRing) mini(c CQE64) []byte {
	b := make([]byte, 8)
	switch {
	case c.OpOwn.Opcode() == OpReq:
		binary.BigEndian.PutUint16(b, c.WQECounter)
		b[2] = c.SopRdrop
	case s.fmt == MiniHash:
		copy(b, c.rsvd00[12:16])
	case s.fmt == MiniCsum:
		binary.BigEndian.PutUint16(b, c.CsumOK)
		b[2], b[3] = 0xde, 0xad // nothing
	case s.fmt == MiniCsumStrIdx:
		binary.BigEndian.PutUint16(b, c.CsumOK)
		binary.BigEndian.PutUint16(b[2:], c.WQECounter)
	}
	binary.BigEndian.PutUint32(b[4:], c.ByteCnt)
	return b
}

// randomRun is completions of one queue that a device could compress into one block.
func randomRun(rng *rand.Rand, format CQECompFormat, n int, counter *uint16) []CQE64 {
	var title CQE64
	random := make([]byte, 64)
	for i := range random {
		random[i] = byte(rng.Uint32())
	}
	title.load(random)
	title.OpOwn = OpOwn(uint8(OpRespSend)<<4 | uint8(rng.IntN(2))<<1) // solicited or not
	switch {
	case n == 1 && rng.IntN(2) == 0: // neither errors nor entries with payload are compressed
		title.OpOwn = []OpOwn{0xd0, 0xe0, 0x24, 0x28}[rng.IntN(4)]
	case rng.IntN(2) == 0:
		title.OpOwn = OpOwn(uint8(OpReq) << 4)
	}
	run := make([]CQE64, n)
	for i := range run {
		run[i] = title
		run[i].ByteCnt = rng.Uint32()
		run[i].WQECounter = *counter
		*counter++
		switch { // the other fields of a mini-CQE
		case title.OpOwn.Opcode() == OpReq:
			*counter += uint16(rng.IntN(3)) // WQEs of several basic blocks
			run[i].SopRdrop = uint8(rng.Uint32())
		case format == MiniHash:
			binary.BigEndian.PutUint32(run[i].rsvd00[12:], rng.Uint32())
		case format == MiniCsum:
			run[i].CsumOK = uint16(rng.Uint32())
		default:
			run[i].CsumOK = uint16(rng.Uint32())
			*counter += uint16(rng.IntN(3)) // packets of several strides
		}
	}
	return run
}
