package xdp

import (
	"crypto/rand"
	"encoding/binary"
	"sync/atomic"
)

// secret is the multipliers of the hash. They are random: who sends packets, or gets the sender's addresses banned by rules,
// cannot choose keys that collide. The secret lives as long as the pins, because the slots were filled by it.
type secret struct {
	mul  [Words][2]uint64 // by word: of its low and its high half
	seed uint64           // of the id of the tuple
	fold uint64           // of the sum; odd
}

const secretWords = 2*Words + 2

// drawSecret fills the words of the meta map that hold the secret.
func drawSecret(mem []uint64) {
	var b [8 * secretWords]byte
	rand.Read(b[:]) // it never returns an error
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

// hash returns the hash of a packed key, as ft_hash of bpf/tables.h computes it. word is the words that the key has.
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
