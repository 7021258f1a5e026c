package xdp

import (
	"errors"
	"fmt"
	"iter"
	"net/netip"
	"slices"
	"sync/atomic"

	"github.com/flowtally/flowtally/xdp/members"
)

// A set comes or grows in a new memory. It is filled while the attached programs read the old one, in which nothing changes. Then
// programs that read the new memory take their place, as for a change of rules. So each packet meets the sets of before or of after.

// setPlan is a set of the next memory.
type setPlan struct {
	name     string
	was      *memberSet // in the memory of now, or nil
	shape    members.Shape
	elements iter.Seq[netip.Prefix] // nil: those of was, in the same tables
}

// moveSets makes a memory with the planned sets, and exchanges the programs. After an error the sets are as before. The caller holds
// Datapath.changes, Datapath.mu and sets.life.
func (dp *Datapath) moveSets(plans []setPlan) error {
	ss := &dp.sets
	words := setTables
	next := map[string]*memberSet{}
	taken := map[int]bool{}
	for _, p := range plans {
		if p.was != nil {
			taken[p.was.number] = true
		}
	}
	for _, p := range plans {
		n, err := p.shape.Words()
		if err != nil {
			return fmt.Errorf("set %s: %w", p.name, err)
		}
		s := &memberSet{name: p.name, shape: p.shape, base: words}
		if p.was != nil {
			s.number = p.was.number
		} else {
			for taken[s.number] {
				s.number++
			}
			taken[s.number] = true
		}
		next[p.name] = s
		words += n
	}
	words += members.Tail

	memory, err := newSetMemory(dp.kernel, words)
	if err != nil {
		return err
	}
	dp.outside(func() { err = ss.fillAll(memory.words, next, plans) })
	if err != nil {
		return errors.Join(err, closeMemory(memory))
	}
	for level := range ss.pairs {
		for bit, p := range ss.pairs[level] {
			writePair(memory.words, level, bit, p)
		}
	}
	atomic.StoreUint64(&memory.words[0], setMagic)
	return dp.exchangeMemory(memory, next)
}

// fillAll fills the tables of the next memory. A million elements take a second, so it runs without Datapath.mu. Hooks that are attached
// meanwhile get programs for the memory of now, and are exchanged with the others.
func (ss *sets) fillAll(words []uint64, next map[string]*memberSet, plans []setPlan) error {
	for _, p := range plans {
		err := ss.fillNext(words, next[p.name], p)
		if errors.Is(err, members.ErrFull) {
			err = fmt.Errorf("%w: %w", ErrFull, err)
		}
		if err != nil {
			return fmt.Errorf("set %s: %w", p.name, err)
		}
	}
	return nil
}

// fillNext fills the tables of a set in the next memory.
func (ss *sets) fillNext(words []uint64, s *memberSet, p setPlan) (err error) {
	switch {
	case p.elements != nil:
		s.secret = members.NewSecret()
		if s.filled, err = members.New(words, s.base, s.shape, s.secret); err != nil {
			return err
		}
		for e := range p.elements {
			if _, err := s.filled.Add(e); err != nil {
				return err
			}
		}
		s.filled.Reclaim() // no program reads this memory yet
	case p.was.filled != nil:
		s.secret = p.was.secret
		if s.filled, err = p.was.filled.CopyTo(words, s.base); err != nil {
			return err
		}
	default:
		s.secret = p.was.secret
		n, err := s.shape.Words()
		if err != nil {
			return err
		}
		copy(words[s.base:][:n], ss.memory.words[p.was.base:])
	}
	atomic.StoreUint64(&words[setRoots+s.number], uint64(s.base)*8)
	s.writeRecord(words)
	return nil
}

// exchangeMemory makes a memory the one that programs read.
func (dp *Datapath) exchangeMemory(memory *sharedMap, next map[string]*memberSet) error {
	ss := &dp.sets
	if err := dp.pinNext(memory); err != nil {
		return errors.Join(err, closeMemory(memory))
	}
	dp.meta.setWithSets()

	old, before := ss.memory, ss.byName
	ss.memory, ss.byName = memory, next
	if dp.constants.need&needSets == 0 { // no program reads either
		dp.commitPin()
		return closeMemory(old)
	}
	if err := dp.reloadOrStay(); err != nil {
		ss.memory, ss.byName = old, before
		return errors.Join(err, dp.dropNextPin(), closeMemory(memory))
	}
	return closeMemory(old)
}

// reloadOrStay is reload. If it fails, the attached programs and their places stay.
func (dp *Datapath) reloadOrStay() error {
	err := dp.reload()
	if err != nil {
		dp.tables.stay()
	}
	return err
}

// growSet adds elements to a set that is full, or gives it no others. It returns how many elements more than before the set has.
func (dp *Datapath) growSet(name string, elements []netip.Prefix, only bool) (added int, err error) {
	if err := dp.enterChanges(); err != nil {
		return 0, err
	}
	defer dp.leaveChanges()
	ss := &dp.sets
	ss.life.Lock()
	defer ss.life.Unlock()
	s, err := dp.filledSet(name)
	if err != nil {
		return 0, err
	}

	all := slices.Values(elements)
	if !only {
		missing := slices.DeleteFunc(slices.Clone(elements), s.filled.Has) // an element counts once for the room
		all = concat(s.filled.All(), slices.Values(missing))
	}
	before := s.filled.Len()
	shape, err := roomFor(all, s.shape)
	if err == nil && shape == s.shape && !only {
		shape, err = twice(shape) // keys that crowd one place of a table may fill a set with room
	}
	for err == nil {
		plans := append(ss.stay(map[string]bool{name: true}), setPlan{
			name:     name,
			was:      s,
			shape:    shape,
			elements: all,
		})
		if err = dp.moveSets(plans); !errors.Is(err, members.ErrFull) {
			break
		}
		shape, err = twice(shape)
	}
	if err != nil {
		return 0, err
	}
	return ss.byName[name].filled.Len() - before, nil
}

// concat yields the elements of a and then those of b.
func concat(a, b iter.Seq[netip.Prefix]) iter.Seq[netip.Prefix] {
	return func(yield func(netip.Prefix) bool) {
		for _, part := range []iter.Seq[netip.Prefix]{a, b} {
			for p := range part {
				if !yield(p) {
					return
				}
			}
		}
	}
}

// leastRoom is the room of a version of IP that has elements.
const leastRoom = 256

// roomFor returns a shape for at least as many elements as room has, and for these. If these need more, it leaves a part of it free.
func roomFor(elements iter.Seq[netip.Prefix], room members.Shape) (members.Shape, error) {
	var n members.Shape
	for p := range elements {
		switch {
		case !p.Addr().Is4():
			n.IPv6++
		case p.Bits() == 25: // four slots
			n.IPv4 += 4
		case p.Bits() == 26:
			n.IPv4 += 2
		default:
			n.IPv4++
		}
	}
	if _, err := fitting(room); err != nil {
		return room, err
	}
	grown := func(room, n int) int {
		if n <= room {
			return room
		}
		return max(n, min(max(n+n/4, 2*room, leastRoom), members.MostElements))
	}
	return fitting(members.Shape{IPv4: grown(room.IPv4, n.IPv4), IPv6: grown(room.IPv6, n.IPv6)})
}

// twice returns a shape with twice the room, or as much as a set can have.
func twice(s members.Shape) (members.Shape, error) {
	next := members.Shape{IPv4: min(2*s.IPv4, members.MostElements), IPv6: min(2*s.IPv6, members.MostElements)}
	if next == s {
		return s, fmt.Errorf("%w: it has room for %d elements of IPv4 and %d of IPv6, the most that a set can have", ErrFull, s.IPv4, s.IPv6)
	}
	return next, nil
}

// fitting returns an error if a set cannot have a shape.
func fitting(s members.Shape) (members.Shape, error) {
	if most := max(s.IPv4, s.IPv6); most > members.MostElements {
		return s, fmt.Errorf("%w: room for %d elements, and a set has room for at most %d of IPv4 and of IPv6", ErrFull, most, members.MostElements)
	}
	if min(s.IPv4, s.IPv6) < 0 {
		return s, fmt.Errorf("%w: room for %d elements", ErrInvalid, min(s.IPv4, s.IPv6))
	}
	return s, nil
}

// clearRecord takes a set out of a memory. Programs that still ask find it empty.
func (s *memberSet) clearRecord(words []uint64) {
	atomic.StoreUint64(&setRecord(words, s.number)[0], 0)
	members.Retract(words, setRoots+s.number)
}

// constants returns what programs know of each set.
func (ss *sets) constants() (all [maxSets]members.Constants) {
	for _, s := range ss.byName {
		all[s.number] = s.shape.Constants(s.secret, setRoots+s.number)
	}
	return all
}

// pairConstants returns the pairs as programs know them.
func (ss *sets) pairConstants() (all [2][outerPairs]uint8) {
	for level := range ss.pairs {
		for bit, p := range ss.pairs[level] {
			if p.used {
				all[level][bit] = p.constant()
			}
		}
	}
	return all
}
