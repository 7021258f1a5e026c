package xdp

import "sync/atomic"

// The map of entries has one entry per rule, made of adjacent units of 16 bytes. Programs read the entries. The directory, a
// part of the meta map, has one word per unit. The word of an entry's first unit describes the entry to this process, and to
// the next one.

// States of an entry. Storing its directory word commits a change of the entry.
const (
	entryFree   = iota // no entry begins at this unit
	entryLive          // programs find it
	entryDead          // being removed: slots may still lead to it for a moment
	entryComing        // being added: becomes live with the commit of the change, or dead if the process dies first
)

// dirWord is a word of the directory: state, tuple, size, action and counter of an entry.
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

// isFound reports whether programs may find the entry.
func (d dirWord) isFound() bool { return d.state() == entryLive || d.state() == entryComing }

// with returns the word of the same entry in another state.
func (d dirWord) with(state uint8) dirWord { return d&^0xff | dirWord(state) }

// entryStore allocates units. Programs may still read an entry when it is retired, so its units are freed after a grace period.
type entryStore struct {
	words []uint64 // of the map of entries
	ranks []uint64 // the end of words: by first unit of an entry, the rank of its rule
	dir   []uint64

	// In this process only.
	used    []uint64 // bitmap of units
	free    int      // number of free units
	next    int      // unit at which the next search begins
	retired []uint32 // entries waiting for a grace period
	waiting int      // units of the retired entries
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

// alloc allocates n adjacent units. The first is a multiple of align, which must be a power of two.
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

// rankAt returns the word at which the ranks begin. The gap before it is large enough for an entry of any size at the last unit.
func rankAt(units int) int { return units*unitWords + treeEntryWords }

// sizeFor returns the number of units for an entry of n words. Even the entry without words, of the rule that matches every packet,
// needs a unit: the number of the unit identifies the entry.
func sizeFor(n int) int { return max(1, (n+unitWords-1)/unitWords) }

func (s *entryStore) rank(unit uint32) uint64 { return s.ranks[unit] }

func (s *entryStore) packed(unit uint32, n int) []uint64 {
	at := int(unit) * unitWords
	return s.words[at : at+n]
}

func (s *entryStore) dirWord(unit uint32) dirWord { return dirWord(atomic.LoadUint64(&s.dir[unit])) }

func (s *entryStore) setDir(unit uint32, d dirWord) { atomic.StoreUint64(&s.dir[unit], uint64(d)) }

// write fills a new entry. Its directory word comes last and commits it. No slot and no tree may lead to the entry yet.
func (s *entryStore) write(unit uint32, rank uint64, packed []uint64, d dirWord) {
	atomic.StoreUint64(&s.ranks[unit], rank)
	copy(s.packed(unit, len(packed)), packed)
	s.setDir(unit, d)
}

// retire schedules a dead entry for the next reclaim. No slot and no tree may lead to it any more.
func (s *entryStore) retire(unit uint32) {
	s.retired = append(s.retired, unit)
	s.waiting += int(s.dirWord(unit).size())
}

// reclaim frees the retired entries. The caller must have waited for a grace period since the last retire.
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
