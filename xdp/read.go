package xdp

import (
	"fmt"
	"sync/atomic"
)

// readTries bounds the attempts at one slot. A program adds a packet in a few
// nanoseconds and then does other things for at least as many; two attempts are rare.
const readTries = 1 << 12

// values is the mapped counters' memory and where each count began. Reading
// takes no lock, makes no system call and allocates nothing.
type values struct {
	words []uint64 // all CPUs' blocks
	block int      // words of one CPU's block
	base  []Pair
}

// pair reads one slot: packets, and 256 times the bytes of exactly those packets
// plus packets. The second word changes with every packet, so unchanged around the load of the
// first it leaves the first at most one packet away, which its low byte tells.
// Go's atomic loads keep their order on every architecture.
func (v *values) pair(at int) (packets, second uint64, ok bool) {
	w := v.words[at : at+2 : at+2]
	for range readTries {
		second = atomic.LoadUint64(&w[1])
		packets = atomic.LoadUint64(&w[0])
		if atomic.LoadUint64(&w[1]) == second && uint8(second) == uint8(packets) {
			return packets, second, true
		}
	}
	return 0, 0, false
}

// raw sums a counter over all CPUs, from when the map was made.
func (v *values) raw(id uint32) (Pair, error) {
	var sum Pair
	for at := int(id) * 2; at < len(v.words); at += v.block {
		p, s, ok := v.pair(at)
		if !ok {
			return Pair{}, fmt.Errorf("reading counter %d: %w", id, ErrTorn)
		}
		sum.Packets += p
		sum.Bytes += (s - p) >> 8
	}
	return sum, nil
}

func (v *values) readColumns(ids []uint32, packets, bytes []uint64) error {
	packets, bytes = packets[:len(ids)], bytes[:len(ids)]
	words, base, block := v.words, v.base, v.block
	for i, id := range ids {
		if int(id) >= len(base) {
			return fmt.Errorf("reading counter %d: %w", id, ErrNotFound)
		}
		var p, b uint64
		for at := int(id) * 2; at+1 < len(words); at += block {
			second := atomic.LoadUint64(&words[at+1])
			n := atomic.LoadUint64(&words[at])
			if atomic.LoadUint64(&words[at+1]) != second || uint8(second) != uint8(n) {
				var ok bool
				if n, second, ok = v.pair(at); !ok {
					return fmt.Errorf("reading counter %d: %w", id, ErrTorn)
				}
			}
			p += n
			b += (second - n) >> 8
		}
		packets[i], bytes[i] = p-base[id].Packets, b-base[id].Bytes
	}
	return nil
}

func (v *values) read(ids []uint32, dst []Pair) error {
	dst = dst[:len(ids)]
	words, base, block := v.words, v.base, v.block
	for i, id := range ids {
		if int(id) >= len(base) {
			return fmt.Errorf("reading counter %d: %w", id, ErrNotFound)
		}
		var p, b uint64
		for at := int(id) * 2; at+1 < len(words); at += block {
			second := atomic.LoadUint64(&words[at+1])
			n := atomic.LoadUint64(&words[at])
			if atomic.LoadUint64(&words[at+1]) != second || uint8(second) != uint8(n) {
				var ok bool
				if n, second, ok = v.pair(at); !ok {
					return fmt.Errorf("reading counter %d: %w", id, ErrTorn)
				}
			}
			p += n
			b += (second - n) >> 8
		}
		dst[i] = Pair{Packets: p - base[id].Packets, Bytes: b - base[id].Bytes}
	}
	return nil
}

// Read fills dst with the values of ids, each a consistent pair, summed over
// CPUs, since its allocation. It may be called from any goroutine, also while
// rules and counters change. The error is ErrTorn, ErrNotFound or ErrClosed;
// what dst holds then is not said.
func (rs *RuleSet) Read(ids []uint32, dst []Pair) error {
	rs.life.RLock()
	defer rs.life.RUnlock()
	if rs.closed {
		return ErrClosed
	}
	return rs.values.read(ids, dst)
}

// ReadColumns is Read into two columns.
func (rs *RuleSet) ReadColumns(ids []uint32, packets, bytes []uint64) error {
	rs.life.RLock()
	defer rs.life.RUnlock()
	if rs.closed {
		return ErrClosed
	}
	return rs.values.readColumns(ids, packets, bytes)
}
