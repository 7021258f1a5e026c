package flexio

import "encoding/binary"

// miniCQE is a completion in 8 bytes: fields that differ from the title, and the byte count. The meaning of the
// first half depends on the queue and on the format of the CQ. It is mlx5_mini_cqe8 of Linux mlx5/device.h and
// DPDK mlx5_prm.h; mlx5dv.h and the reference do not have it.
type miniCQE [8]byte

// wqeCounter returns the index of the completed WQE, for a requester.
func (m miniCQE) wqeCounter() uint16 { return binary.BigEndian.Uint16(m[0:]) }

// sWQEOpcode returns the opcode of the completed WQE, for a requester.
func (m miniCQE) sWQEOpcode() uint8 { return m[2] }

// hash returns the RSS hash, for format MiniHash.
func (m miniCQE) hash() uint32 { return binary.BigEndian.Uint32(m[0:]) }

// checksum returns the checksum and the index of the stride. MiniCsum has only the first.
func (m miniCQE) checksum() (sum, stride uint16) {
	return binary.BigEndian.Uint16(m[0:]), binary.BigEndian.Uint16(m[2:])
}

// byteCnt returns the number of received or sent bytes.
func (m miniCQE) byteCnt() uint32 { return binary.BigEndian.Uint32(m[4:]) }
