package xdp

import "sync/atomic"

// The entries' map holds an entry for each rule. An entry takes units of 16 bytes in a row. The directory, in the meta map, has
// a word for each unit: the word of an entry's first unit describes the entry to user space, also to the next process.

// States of an entry, in its directory word. The store of that word commits a change of the entry.
const (
	entryFree   = iota // 0: no entry begins at the unit
	entryLive          // programs find it
	entryDead          // it is being removed: no slot leads to it, or soon none does
	entryComing        // it is being added: live when its change is committed, and dead if the process dies before that
)

// dirWord is the directory word of an entry: state, id of its tuple, size, action and counter.
type dirWord uint64

func newDirWord(state, tuple, size uint8, drop bool, counter uint32) dirWord {
	d := dirWord(state) | dirWord(tuple)<<8 | dirWord(size)<<16 | dirWord(counter)<<32
	if drop {
		d |= 1 << 24
	}
	return d
}

func (d dirWord) state() uint8    { return uint8(d) }
func (d dirWord) tuple() uint8    { return uint8(d >> 8) }
func (d dirWord) size() uint8     { return uint8(d >> 16) } // in units
func (d dirWord) drop() bool      { return d>>24&1 != 0 }
func (d dirWord) counter() uint32 { return uint32(d >> 32) }

// isFound reports whether slots or trees may lead programs to the entry.
func (d dirWord) isFound() bool { return d.state() == entryLive || d.state() == entryComing }

// with returns the word of the same entry in another state.
func (d dirWord) with(state uint8) dirWord { return d&^0xff | dirWord(state) }

// entryStore hands out the units. A program may still look at a retired entry, so its units are free only after a grace period.
type entryStore struct {
	words []uint64 // of the entries' map
	ranks []uint64 // a part of words, behind the units: for each unit the rank of the entry that begins there
	dir   []uint64

	// In this process only.
	used    []uint64 // bit for each unit
	free    int      // units
	next    int      // where the search for free units goes on
	retired []uint32 // entries that wait for a grace period
	waiting int      // their units
}

func newEntryStore(mem, dir []uint64, units int) *entryStore {
	return &entryStore{
		words: mem,
		ranks: mem[rankAt(units):][:units],
		dir:   dir,
		used:  make([]uint64, (units+63)/64),
		free:  units,
	}
}

func (s *entryStore) units() int { return len(s.dir) }

func (s *entryStore) taken(u int) bool { return s.used[u>>6]>>(u&63)&1 != 0 }

func (s *entryStore) take(u, n int) {
	for i := u; i < u+n; i++ {
		s.used[i>>6] |= 1 << (i & 63)
	}
	s.free -= n
}

func (s *entryStore) release(u, n int) {
	for i := u; i < u+n; i++ {
		s.used[i>>6] &^= 1 << (i & 63)
	}
	s.free += n
}

// alloc takes n free units in a row, from a multiple of align on, which is a power of two.
func (s *entryStore) alloc(n, align int) (unit uint32, ok bool) {
	if s.free < n {
		return 0, false
	}
	run := 0
	for i, u := 0, s.next; i < s.units()+n+align; i, u = i+1, u+1 {
		if u >= s.units() {
			u, run = 0, 0
		}
		if s.taken(u) {
			run = 0
			continue
		}
		if run == 0 && u&(align-1) != 0 {
			continue
		}
		if run++; run == n {
			first := u - n + 1
			s.take(first, n)
			s.next = u + 1
			return uint32(first), true
		}
	}
	return 0, false
}

// rankAt returns the word of the entries' map at which the ranks begin. Before it is room for the greatest entry to begin at the
// last unit.
func rankAt(units int) int { return units*unitWords + treeEntryWords }

// sizeFor returns the number of units of an entry with n words. The rule that matches every packet has no word. It takes a unit
// all the same, because the unit is its name in the directory.
func sizeFor(n int) int { return max(1, (n+unitWords-1)/unitWords) }

func (s *entryStore) rank(unit uint32) uint64 { return s.ranks[unit] }

func (s *entryStore) packed(unit uint32, n int) []uint64 {
	at := int(unit) * unitWords
	return s.words[at : at+n]
}

func (s *entryStore) dirWord(unit uint32) dirWord { return dirWord(atomic.LoadUint64(&s.dir[unit])) }

func (s *entryStore) setDir(unit uint32, d dirWord) { atomic.StoreUint64(&s.dir[unit], uint64(d)) }

// write fills an entry to which nothing leads yet, and commits it by its directory word.
func (s *entryStore) write(unit uint32, rank uint64, packed []uint64, d dirWord) {
	atomic.StoreUint64(&s.ranks[unit], rank)
	copy(s.packed(unit, len(packed)), packed)
	s.setDir(unit, d)
}

// retire frees a dead entry, to which nothing leads any more, at the next reclaim.
func (s *entryStore) retire(unit uint32) {
	s.retired = append(s.retired, unit)
	s.waiting += int(s.dirWord(unit).size())
}

// reclaim frees the retired entries. A grace period has passed since the last retire.
func (s *entryStore) reclaim() {
	for _, u := range s.retired {
		n := int(s.dirWord(u).size())
		s.setDir(u, 0)
		s.release(int(u), n)
	}
	s.retired = s.retired[:0]
	s.waiting = 0
}

// slot returns the word that leads programs to an entry.
func (s *entryStore) slot(unit uint32, hash uint64) uint64 {
	d := s.dirWord(unit)
	return slotOf(unit, d.counter(), d.drop(), tagOf(hash))
}
