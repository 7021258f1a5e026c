package xdp

import (
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
)

// Simulated holds counters in the memory of this process, as programs would leave them. The benchmarks use it to read the counters of
// a machine with many CPUs. Tests of the whole engine use it to count packets.
type Simulated struct {
	values values
	mem    []byte
}

// NewSimulated makes counters for a number of CPUs. All are 0.
func NewSimulated(counters, cpus int) (*Simulated, error) {
	g, err := newGeometry(Options{MaxCounters: counters}, cpus)
	if err != nil {
		return nil, err
	}
	mem, err := unix.Mmap(-1, 0, g.counterBytes(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return nil, fmt.Errorf("mapping the counters of %d CPUs: %w", cpus, err)
	}
	return &Simulated{mem: mem, values: g.values(wordsOf(mem))}, nil
}

// Close unmaps the counters. Callers must not use s afterwards.
func (s *Simulated) Close() error { return unix.Munmap(s.mem) }

// Update counts packets like a program on a CPU would. There must be at most 255 of them.
func (s *Simulated) Update(cpu int, id uint32, packets, bytes uint64) {
	block := s.values.words[cpu*s.values.block:][:s.values.block]
	slot := s.slot(cpu, id)
	slot[0] += packets
	slot[1] += bytes<<8 + packets
	marksOf(block[s.values.marks:])[id/marked]++
}

// slot returns the slot of a counter on a CPU.
func (s *Simulated) slot(cpu int, id uint32) []uint64 {
	return s.values.words[cpu*s.values.block+int(id)*2:][:2:2]
}

// SimulatedOver returns the counters of a datapath, in the memory of the maps that Options.Kernel gave it. decide plays the program:
// of the entries that a program would find, it returns the one with the lowest rank that matches a packet. members is the
// memory of the sets, or nil.
func SimulatedOver(counters, entries, meta, members []byte) (s *Simulated, decide func(*Key) (counter uint32, drop, ok bool), err error) {
	g, err := geometryOf(wordsOf(meta))
	if err != nil {
		return nil, nil, err
	}
	m := metaOf(wordsOf(meta), g)
	store := newEntryStore(wordsOf(entries), m.dir, g.units)
	asked := new(sets)
	if members != nil {
		if err := asked.read(wordsOf(members)); err != nil {
			return nil, nil, err
		}
	}
	decide = func(packet *Key) (counter uint32, drop, ok bool) {
		if members != nil {
			asked.answer(wordsOf(members), packet)
		}
		masks := m.masks()
		best := noRank
		for unit := uint32(0); int(unit) < g.units; {
			d := store.dirWord(unit)
			rank := store.rank(unit)
			if d.isFound() && rank < best && store.matches(masks, unit, d, packet) {
				best, counter, drop, ok = rank, d.counter(), d.drop(), true
			}
			unit += max(1, uint32(d.size()))
		}
		return counter, drop, ok
	}
	return &Simulated{values: g.values(wordsOf(counters))}, decide, nil
}

// matches reports whether the rule of an entry matches a packet. masks are the masks of the tuples, by id.
func (s *entryStore) matches(masks map[uint8]*words, unit uint32, d dirWord, packet *Key) bool {
	if d.tuple() == treeID {
		var r Rule
		s.readTree(unit, &r)
		return r.matches(packet.words())
	}
	mask := masks[d.tuple()]
	if mask == nil {
		return false
	}
	u := newTuple(d.tuple(), mask)
	return slices.Equal(u.pack(nil, packet.words()), s.packed(unit, len(u.maskWords)))
}

// Slot returns the two words of a counter on a CPU.
func (s *Simulated) Slot(cpu int, id uint32) [2]uint64 { return [2]uint64(s.slot(cpu, id)) }

// SimulatedPairs fills dst like ReadPairs.
func SimulatedPairs[P ~struct{ Packets, Bytes uint64 }](s *Simulated, ids []uint32, dst []P) error {
	return s.values.read(ids, pairsOf(dst))
}

// SimulatedRows fills dst like ReadRows.
func SimulatedRows[R ~struct {
	Packets, Bytes uint64
	SampledAt      int64
}](s *Simulated, first uint32, dst []R, at int64) error {
	return s.values.rows(first, rowsOf(dst), at)
}

// Marks fills dst like Datapath.Marks.
func (s *Simulated) Marks(dst []uint32) error { return s.values.readMarks(dst) }
