package xdp

import (
	"fmt"
	"runtime"
	"sync/atomic"
)

// readTries bounds the attempts to read one slot. A second attempt is rare. But a CPU may stop between its two stores for as long
// as an interrupt or a hypervisor takes.
const readTries = 1 << 20

// inOrder: the stores of one CPU become visible to others in their order.
const inOrder = runtime.GOARCH == "amd64" || runtime.GOARCH == "386"

// values is the mapped memory of the counters, and where each count began. Reads take no lock of it, make no system call and
// allocate nothing. A CPU's block is its slots, two words each, and behind them its marks.
type values struct {
	words []uint64 // the blocks of all CPUs
	block int      // words of a block
	marks int      // words of a block before its marks
	base  []sums   // by counter
	least []uint64 // by counter: a number of bytes that its count has reached, in steps of 2^54; nil: 0 for all
}

// sums are the sums of the first and of the second words of a counter's slots, since the map was made. The second words have 56
// bits of bytes. The bytes of a counter that has served many flows wrap around; their difference to an earlier sum is right.
type sums struct{ packets, seconds uint64 }

// since returns the count from an earlier sum on.
func (s sums) since(base sums) Pair {
	packets := s.packets - base.packets
	return Pair{Packets: packets, Bytes: (s.seconds - base.seconds - packets) >> 8}
}

// values returns the values in the memory of the counters' map. Each base is 0.
func (g geometry) values(words []uint64) values {
	return values{
		words: words[:g.counterBytes()/8],
		block: g.block / 8,
		marks: g.marksAt() / 8,
		base:  make([]sums, g.counters),
	}
}

// pair reads one slot: its first word, packets, and its second word, which is 256 times the bytes of exactly these packets, plus
// packets.
//
// The second word changes with every update. If it is the same before and after the load of the first word, the first word is
// at most one update away, of at most 255 packets, and the low bytes give the difference. On a CPU that keeps the order of
// stores the first word is ahead by that difference: its earlier value belongs to the second word. On others pair tries
// again. Go's atomic loads keep their order on every architecture.
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

// raw sums the slots of a counter over all CPUs.
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

// whole returns the bytes of a count from their low 56 bits. It is at least least, and less than 2^56 above it.
func (v *values) whole(id uint32, bytes uint64) uint64 {
	if v.least == nil {
		return bytes
	}
	least := v.least[id]
	return least + (bytes-least)<<8>>8
}

// setLeast notes the steps of bytes that a count has reached. Nobody reads this count meanwhile, and with steps above 0 nobody
// reads any count.
func (v *values) setLeast(id uint32, steps uint64) {
	if v.least == nil && steps > 0 {
		v.least = make([]uint64, len(v.base))
	}
	if v.least != nil {
		v.least[id] = steps << 54
	}
}

// KeepBytes notes how many bytes counters have reached, for Read and for the next process. The slots have only 56 bits of them.
// It must be called before a counter has had 2^55 bytes (36 PB) since the last call. Open calls it.
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
			dp.reads.Lock() // no read is under way
			dp.values.setLeast(id, steps)
			dp.reads.Unlock()
		}
	}
}

// read fills dst with the counters ids. It sums adjacent ones, which most are, eight at a time if the CPU can.
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

// adjacent returns how many of the first ids follow one another, at least one.
func adjacent(ids []uint32) int {
	for i := 1; i < len(ids); i++ {
		if ids[i] != ids[0]+uint32(i) {
			return i
		}
	}
	return len(ids)
}

// sum fills dst with the counters from id on, and returns false if it met a slot in the middle of an update. The length of dst is
// a multiple of 8. The caller has checked that the last counter exists.
func (v *values) sum(id uint32, dst []Pair) bool {
	cpus := len(v.words) / v.block
	slots := v.words[int(id)*2 : (cpus-1)*v.block+(int(id)+len(dst))*2]
	base := v.base[id:][:len(dst)]
	return sumSlots(&slots[0], uintptr(v.block)*8, uintptr(cpus), uintptr(len(dst)), &base[0], &dst[0]) == 0
}

// readEach reads one counter after the other. The caller has checked that they exist.
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

// Read fills dst with the values of the counters ids: what each has counted since its allocation on all CPUs, as a consistent
// pair. It may be called from any goroutine, also while rules and counters change. The error is ErrTorn, ErrNotFound or
// ErrClosed; then dst is undefined.
func (dp *Datapath) Read(ids []uint32, dst []Pair) error {
	dp.reads.RLock()
	defer dp.reads.RUnlock()
	if dp.closed {
		return ErrClosed
	}
	return dp.values.read(ids, dst)
}

// ReadPairs fills dst with the values of ids, as Read does.
func ReadPairs[P ~struct{ Packets, Bytes uint64 }](dp *Datapath, ids []uint32, dst []P) error {
	return dp.Read(ids, pairsOf(dst))
}

// rows fills dst with the counters from id on, each with the sample time at. At a counter that cannot be read it returns the
// error; that row and those behind it stay as they were.
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

// ReadRows fills dst with the values of the counters from first on, as Read does, each with the sample time at, in ns of
// CLOCK_MONOTONIC. If it returns an error, each row has a value that Read would have returned, or the value of before.
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
