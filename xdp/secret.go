package xdp

import (
	"crypto/rand"
	"encoding/binary"
	"sync/atomic"
)

// secret holds the random multipliers of the hash. Because of them, nobody can choose keys that collide: neither by sending packets,
// nor by getting addresses of their choice into the rules. The secret lives as long as the pins, because the positions of the
// slots depend on it.
type secret struct {
	mul  [Words][2]uint64 // by word: for its low half and its high half
	seed uint64           // for the id of the tuple
	fold uint64           // for the sum; odd
}

const secretWords = 2*Words + 2

// drawSecret fills the words of the meta map that hold the secret.
func drawSecret(mem []uint64) {
	var b [8 * secretWords]byte
	rand.Read(b[:]) // never returns an error
	for i := range secretWords {
		atomic.StoreUint64(&mem[i], binary.NativeEndian.Uint64(b[8*i:]))
	}
}

func secretOf(mem []uint64) *secret {
	s := &secret{seed: mem[2*Words], fold: mem[2*Words+1] | 1}
	for w := range s.mul {
		s.mul[w] = [2]uint64{mem[2*w], mem[2*w+1]}
	}
	return s
}

// hash computes the hash of a packed key, like ft_hash of bpf/tables.h. word lists the words of the packed key.
func (s *secret) hash(id uint8, word []uint8, packed []uint64) uint64 {
	h := s.tupleSeed(id)
	for i, w := range word {
		h += packed[i]&0xffffffff*s.mul[w][0] + packed[i]>>32*s.mul[w][1]
	}
	h ^= h >> 32
	h *= s.fold
	return h ^ h>>29
}

func (s *secret) tupleSeed(id uint8) uint64 { return s.seed * uint64(id+1) }
