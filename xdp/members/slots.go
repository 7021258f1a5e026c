package members

import "math/bits"

// slots are an open-addressed hash table. The home of a key is a line. If all slots of a line are used, its keys go on in the next one.
// A key never moves.
type slots struct {
	at   int      // word of the first slot
	own  []uint64 // by slot: its elements, see ownBit
	used int
}

func newSlots(at, home int) slots {
	if at == 0 {
		return slots{}
	}
	return slots{at: at, own: make([]uint64, (1<<home+scanLines-1)*lineWords)}
}

// room reports whether another key fits: a third of the slots stays free.
func (t *slots) room() bool { return t.used < len(t.own)/3*2 }

// find returns the slot for which match returns true, from a home on.
func (s *Set) find(t *slots, home uint64, match func(slot uint64) bool) (place int, ok bool) {
	first := int(home) * lineWords
	for i := first; i < first+scanLines*lineWords; i++ {
		slot := s.words[t.at+i]
		if slot == 0 {
			break
		}
		if slot != dead && match(slot) {
			return i, true
		}
	}
	return 0, false
}

// free returns the first slot from a home on that has no key.
func (s *Set) free(t *slots, home uint64) (place int, ok bool) {
	first := int(home) * lineWords
	for i := first; i < first+scanLines*lineWords; i++ {
		if s.words[t.at+i] <= dead {
			return i, true
		}
	}
	return 0, false
}

// drop frees a slot that has no element. A line that was full has keys behind it, so its last slot never becomes 0.
func (s *Set) drop(t *slots, place int) {
	t.used--
	t.own[place] = 0
	line := place &^ (lineWords - 1)
	last := t.at + line + lineWords - 1
	next := t.at + place + 1
	if s.words[last] != 0 || s.words[next] != 0 {
		s.store(t.at+place, dead)
		return
	}
	for i := place; i >= line; i-- {
		if i < place && s.words[t.at+i] != dead {
			break
		}
		s.store(t.at+i, 0)
	}
}

// ownBit is the bit of an element in a slot's own word: the prefixes of 0 to 5 bits make a tree, whose root is bit 1.
func ownBit(length int, bit uint32) uint64 { return 1 << (1<<length | bit>>(5-length)) }

// spread returns the addresses of the elements in an own word.
func spread(own uint64) uint64 {
	m := own >> 32
	for inner := own & 0xffffffff; inner != 0; inner &= inner - 1 {
		i := bits.TrailingZeros64(inner)
		length := bits.Len(uint(i)) - 1
		width := 32 >> length
		m |= (1<<width - 1) << ((i - 1<<length) * width)
	}
	return m
}
