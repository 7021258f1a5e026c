package xdp

import (
	"fmt"
	"runtime"
	"sync/atomic"
)

// readTries bounds the attempts to read one slot. A second attempt is rare, but an interrupt or a hypervisor may stop a CPU between
// its two stores for a while.
const readTries = 1 << 20

// inOrder is set on CPUs whose stores become visible to other CPUs in program order.
const inOrder = runtime.GOARCH == "amd64" || runtime.GOARCH == "386"

// values is the mapped memory of the counters, with the base of each count. Reading it takes no lock, makes no system call and
// allocates nothing. The block of a CPU has a slot of two words for each counter, followed by the marks.
type values struct {
	words []uint64 // the blocks of all CPUs
	block int      // words of a block
	marks int      // words of a block before its marks
	base  []sums   // by counter
	least []uint64 // by counter: bytes already reached, a multiple of 2^54; nil if all are 0
}

// sums adds up the slots of a counter: the first words, and the second words. Both count from the creation of the map. The second
// words hold 56 bits of bytes, which wrap around. The difference of two sums is right all the same.
type sums struct{ packets, seconds uint64 }

// since returns the count since an earlier sum.
func (s sums) since(base sums) Pair {
	packets := s.packets - base.packets
	return Pair{Packets: packets, Bytes: (s.seconds - base.seconds - packets) >> 8}
}

// values returns the counters in the memory of their map. Each base is 0.
func (g geometry) values(words []uint64) values {
	return values{
		words: words[:g.counterBytes()/8],
		block: g.block / 8,
		marks: g.marksAt() / 8,
		base:  make([]sums, g.counters),
	}
}

// pair reads one slot, without a lock. The first word is packets. The second word is 256 times the bytes of exactly these packets,
// plus packets, so its low byte repeats the low byte of the first word.
//
// A program stores the first word, then the second. Every update changes the second word. If pair loads the same second word
// before and after the first word, at most one update lies between the two words, and it adds at most 255 packets. The low bytes
// then tell how many. On a CPU that stores in order, the first word can only be ahead: pair subtracts those packets, and gets
// the value that belongs to the second word. On other CPUs it tries again. Go's atomic loads stay in order on every CPU.
func (v *values) pair(at int) (packets, second uint64, ok bool) {
	w := v.words[at : at+2 : at+2]
	for try := range readTries {
		second = atomic.LoadUint64(&w[1])
		packets = atomic.LoadUint64(&w[0])
		if atomic.LoadUint64(&w[1]) != second {
			continue
		}
		if ahead := uint8(packets) - uint8(second); ahead == 0 || inOrder {
			return packets - uint64(ahead), second, true
		}
		if try&0xfff == 0xfff {
			runtime.Gosched()
		}
	}
	return 0, 0, false
}

// raw sums the slots of a counter over all CPUs, since the map was made.
func (v *values) raw(id uint32) (all sums, err error) {
	for at := int(id) * 2; at < len(v.words); at += v.block {
		p, s, ok := v.pair(at)
		if !ok {
			return sums{}, fmt.Errorf("reading counter %d: %w", id, ErrTorn)
		}
		all.packets += p
		all.seconds += s
	}
	return all, nil
}

// whole extends the low 56 bits of a count of bytes. The result is at least v.least[id], and less than 2^56 above it.
func (v *values) whole(id uint32, bytes uint64) uint64 {
	if v.least == nil {
		return bytes
	}
	least := v.least[id]
	return least + (bytes-least)<<8>>8
}

// setLeast records how many steps of 2^54 bytes a count has reached. The caller must make sure that nobody reads this count in the
// meantime, and for steps above 0, that nobody reads at all.
func (v *values) setLeast(id uint32, steps uint64) {
	if v.least == nil && steps > 0 {
		v.least = make([]uint64, len(v.base))
	}
	if v.least != nil {
		v.least[id] = steps << 54
	}
}

// KeepBytes records the high bits of the byte counts, for Read and for the next process. The slots hold only 56 bits of them.
// Callers must call KeepBytes at least once while a counter counts 2^55 bytes (36 PB). Open calls it too.
func (dp *Datapath) KeepBytes() {
	if dp.enter() != nil {
		return
	}
	defer dp.mu.Unlock()
	for _, id := range dp.pool.idByOwner {
		s, err := dp.values.raw(id)
		steps := dp.values.whole(id, s.since(dp.values.base[id]).Bytes) >> 54
		r := dp.meta.counter(id)
		if err == nil && steps > r.steps() && steps < 256 {
			r.setSteps(steps)
			dp.reads.Lock() // setLeast needs it
			dp.values.setLeast(id, steps)
			dp.reads.Unlock()
		}
	}
}

// read fills dst with the values of the counters ids. Most ids are adjacent, and with AVX2 it sums eight adjacent counters at a time.
func (v *values) read(ids []uint32, dst []Pair) error {
	dst = dst[:len(ids)]
	for len(ids) > 0 {
		n := adjacent(ids)
		if int(ids[n-1]) >= len(v.base) {
			return fmt.Errorf("reading counter %d: %w", ids[n-1], ErrNotFound)
		}
		if !canSum || n < 8 || !v.sum(ids[0], dst[:n&^7]) {
			if err := v.readEach(ids[:n], dst); err != nil {
				return err
			}
		} else {
			n &^= 7
		}
		for i := 0; i < n && v.least != nil; i++ {
			dst[i].Bytes = v.whole(ids[i], dst[i].Bytes)
		}
		ids, dst = ids[n:], dst[n:]
	}
	return nil
}

// adjacent returns the length of the run of consecutive ids at the start.
func adjacent(ids []uint32) int {
	for i := 1; i < len(ids); i++ {
		if ids[i] != ids[0]+uint32(i) {
			return i
		}
	}
	return len(ids)
}

// sum fills dst with the values of the counters from id on. It returns false if it met a slot in the middle of an update. The length
// of dst must be a multiple of 8, and all counters must exist.
func (v *values) sum(id uint32, dst []Pair) bool {
	cpus := len(v.words) / v.block
	slots := v.words[int(id)*2 : (cpus-1)*v.block+(int(id)+len(dst))*2]
	base := v.base[id:][:len(dst)]
	return sumSlots(&slots[0], uintptr(v.block)*8, uintptr(cpus), uintptr(len(dst)), &base[0], &dst[0]) == 0
}

// readEach reads one counter after the other. All of them must exist.
func (v *values) readEach(ids []uint32, dst []Pair) error {
	dst = dst[:len(ids)]
	words, base, block := v.words, v.base, v.block
	for i, id := range ids {
		var p, s uint64
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
			s += second
		}
		dst[i] = sums{p, s}.since(base[id])
	}
	return nil
}

// Read fills dst with the values of the counters ids, summed over all CPUs since their allocation. Packets and bytes of a value
// always belong together. Read is safe to call while rules and counters change. The error is ErrTorn, ErrNotFound or ErrClosed,
// and leaves dst undefined.
func (dp *Datapath) Read(ids []uint32, dst []Pair) error {
	dp.reads.RLock()
	defer dp.reads.RUnlock()
	if dp.closed {
		return ErrClosed
	}
	return dp.values.read(ids, dst)
}

// ReadPairs is like Read, but fills a slice of the caller's own pair type.
func ReadPairs[P ~struct{ Packets, Bytes uint64 }](dp *Datapath, ids []uint32, dst []P) error {
	return dp.Read(ids, pairsOf(dst))
}

// rows fills dst with the values of the counters from id on, and the sample time at. If a counter cannot be read, its row and all
// rows after it stay unchanged.
func (v *values) rows(id uint32, dst []Row, at int64) error {
	if uint64(id)+uint64(len(dst)) > uint64(len(v.base)) {
		return fmt.Errorf("reading counters %d to %d: %w", id, int(id)+len(dst)-1, ErrNotFound)
	}
	cpus := uintptr(len(v.words) / v.block)
	for len(dst) > 0 {
		n := 0
		if canSum && len(dst) >= 4 {
			n = int(sumRows(&v.words[id*2], uintptr(v.block)*8, cpus, uintptr(len(dst)&^3), &v.base[id], &dst[0], at))
		}
		for i := 0; i < n && v.least != nil; i++ {
			dst[i].Bytes = v.whole(id+uint32(i), dst[i].Bytes)
		}
		id, dst = id+uint32(n), dst[n:]
		for n = min(8, len(dst)); n > 0; n-- {
			s, err := v.raw(id)
			if err != nil {
				return err
			}
			p := s.since(v.base[id])
			dst[0] = Row{Packets: p.Packets, Bytes: v.whole(id, p.Bytes), SampledAt: at}
			id, dst = id+1, dst[1:]
		}
	}
	return nil
}

// ReadRows is Read of the adjacent counters from first on, into rows. Each row also gets the sample time at, in ns of
// CLOCK_MONOTONIC. After an error, each row has either a correct value or its old one.
func ReadRows[R ~struct {
	Packets, Bytes uint64
	SampledAt      int64
}](dp *Datapath, first uint32, dst []R, at int64) error {
	return dp.readRows(first, rowsOf(dst), at)
}

func (dp *Datapath) readRows(first uint32, dst []Row, at int64) error {
	dp.reads.RLock()
	defer dp.reads.RUnlock()
	if dp.closed {
		return ErrClosed
	}
	return dp.values.rows(first, dst, at)
}
