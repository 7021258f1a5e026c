package flexio

import "encoding/binary"

// miniCQE is a completion in 8 bytes: the fields that differ from the title, then the byte count
// (mlx5_mini_cqe8 of Linux mlx5/device.h and of DPDK mlx5_prm.h; neither mlx5dv.h nor the reference
// has it). The meaning of the first half depends on the queue and on the format of the CQ.
type miniCQE [8]byte

// wqeCounter returns the index of the WQE that a requester's mini-CQE completes.
func (m miniCQE) wqeCounter() uint16 { return binary.BigEndian.Uint16(m[0:]) }

// sWQEOpcode returns the opcode of that WQE.
func (m miniCQE) sWQEOpcode() uint8 { return m[2] }

// hash returns the RSS hash, of format hash.
func (m miniCQE) hash() uint32 { return binary.BigEndian.Uint32(m[0:]) }

// checksum returns the checksum, and the index of the stride: of the formats with either.
func (m miniCQE) checksum() (sum, stride uint16) {
	return binary.BigEndian.Uint16(m[0:]), binary.BigEndian.Uint16(m[2:])
}

// byteCnt returns the number of bytes.
func (m miniCQE) byteCnt() uint32 { return binary.BigEndian.Uint32(m[4:]) }
