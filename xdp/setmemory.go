package xdp

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/flowtally/flowtally/internal/kernel"
	"github.com/flowtally/flowtally/xdp/members"
)

// The memory of all sets is one map, which replaces a section of the object. Programs load the roots and the tables. The rest tells
// the next process what the programs ask for. In 64-bit words:
//
//	header  magic, 7 of 0
//	roots   by number of a set (64): the place of its tables, in bytes
//	sets    by number, of: used, shape (2), first word of the tables, secret (5), length of the name, name (8), 6 of 0
//	pairs   by level (2) and bit (12): 0, or pairUsed and the constant of the pair
//	tables  of one set behind those of the other
//
// Stores to the memory of attached programs are those of package members, and of the first word of a set and of a pair.
const (
	setMagic       = 0x3173746573746c66 // "fltsets1"
	setRoots       = 8
	setRecords     = setRoots + maxSets
	setRecordWords = 24
	setNameAt      = 10 // in a record
	setPairs       = setRecords + maxSets*setRecordWords
	setTables      = setPairs + 2*outerPairs

	maxSets    = 64 // FT_MAX_SETS of bpf/members.h
	maxSetName = 64 // bytes

	pairUsed = 1 << 8
)

// Names of the section, of the pin, and of the pin of a memory whose programs are being loaded.
const (
	membersSection = ".data.members"
	membersPin     = "members"
	nextMembersPin = "members-next"
)

// newSetMemory makes a memory of so many words.
func newSetMemory(k kernel.Kernel, words int) (*sharedMap, error) {
	if words*8 >= maxOffset {
		return nil, fmt.Errorf("creating map members of %d MiB: %w: a program reaches less than %d MiB", words>>17, ErrFull, maxOffset>>20)
	}
	m, err := newMap(k, "ft_members", pages(words*8))
	if err != nil {
		return nil, fmt.Errorf("creating map members of %d bytes: %w", pages(words*8), explain(err))
	}
	memory := &sharedMap{name: membersPin, section: membersSection, m: m}
	if err := memory.mmap(); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return memory, nil
}

// closeMemory unmaps a memory and closes its map. Programs and pins keep it.
func closeMemory(m *sharedMap) error {
	if m == nil {
		return nil
	}
	return errors.Join(m.unmap(), m.m.Close())
}

// record returns the record of a set.
func setRecord(words []uint64, number int) []uint64 {
	return words[setRecords+number*setRecordWords:][:setRecordWords]
}

// writeRecord writes the record of a set. The first word commits it.
func (s *memberSet) writeRecord(words []uint64) {
	r := setRecord(words, s.number)
	r[1], r[2] = uint64(s.shape.IPv4), uint64(s.shape.IPv6)
	r[3] = uint64(s.base)
	copy(r[4:], s.secret.Mul[:])
	r[8] = s.secret.Fold
	r[9] = uint64(len(s.name))
	copy(bytesOf(r[setNameAt:][:maxSetName/8]), s.name)
	atomic.StoreUint64(&r[0], 1)
}

// setPair gives a bit of a level to a pair, or takes it away.
func (ss *sets) setPair(level, bit int, p pair) {
	ss.pairs[level][bit] = p
	writePair(ss.memory.words, level, bit, p)
}

func writePair(words []uint64, level, bit int, p pair) {
	var v uint64
	if p.used {
		v = pairUsed | uint64(p.constant())
	}
	atomic.StoreUint64(&words[setPairs+level*outerPairs+bit], v)
}

// adopt opens the memory that the programs of an earlier process read. Nobody changes its sets: what their elements are is known to
// that process alone. OpenSets gives them elements again.
func (ss *sets) adopt(dir string, k kernel.Kernel) error {
	path := filepath.Join(dir, membersPin)
	pinned, err := openMap(k, path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("opening pinned map %s: %w", path, explain(err))
	}
	m := &sharedMap{name: membersPin, section: membersSection, m: pinned}
	if err := ss.adoptMemory(m); err != nil {
		return errors.Join(fmt.Errorf("reading pinned map %s: %w", path, err), closeMemory(m))
	}
	return nil
}

func (ss *sets) adoptMemory(m *sharedMap) error {
	if m.m.Type() != ebpf.Array || m.m.MaxEntries() != 1 || int(m.m.ValueSize()) < 8*(setTables+members.Tail) {
		return fmt.Errorf("%w: not the memory of sets", ErrIncompatible)
	}
	if err := m.mmap(); err != nil {
		return err
	}
	if err := ss.read(m.words); err != nil {
		return err
	}
	ss.memory = m
	return nil
}

// read reads the records of a memory.
func (ss *sets) read(words []uint64) error {
	if words[0] != setMagic {
		return fmt.Errorf("%w: sets of another version", ErrIncompatible)
	}

	byName := map[string]*memberSet{}
	numbers := map[int]bool{}
	for number := range maxSets {
		r := setRecord(words, number)
		if r[0] == 0 {
			continue
		}
		s := &memberSet{
			number: number,
			shape:  members.Shape{IPv4: int(r[1]), IPv6: int(r[2])},
			base:   int(r[3]),
			secret: members.Secret{Mul: [4]uint64(r[4:8]), Fold: r[8]},
		}
		n, err := s.shape.Words()
		if err != nil || r[9] > maxSetName || s.base < setTables || s.base+n+members.Tail > len(words) {
			return fmt.Errorf("%w: the record of set %d is damaged", ErrIncompatible, number)
		}
		s.name = string(bytesOf(r[setNameAt:][:maxSetName/8])[:r[9]])
		byName[s.name] = s
		numbers[number] = true
	}

	var pairs [2][outerPairs]pair
	for level := range pairs {
		for bit := range pairs[level] {
			v := words[setPairs+level*outerPairs+bit]
			if v&pairUsed == 0 {
				continue
			}
			p := pairOf(level, uint8(v))
			if bit >= mostPairs[level] || !numbers[p.set] {
				return fmt.Errorf("%w: bit %d of level %d belongs to no set", ErrIncompatible, bit, level)
			}
			pairs[level][bit] = p
		}
	}
	ss.byName, ss.pairs = byName, pairs
	return nil
}

// answer puts the answers of the sets in a memory into the key of a packet, as ft_ask of bpf/sets.h does.
func (ss *sets) answer(words []uint64, k *Key) {
	constants := ss.constants()
	for level := range ss.pairs {
		for bit, p := range ss.pairs[level] {
			if !p.used {
				continue
			}
			if a, ok := p.field.address(k); ok {
				setAnswer(p.field.level(), k, bit, members.Lookup(words, &constants[p.set], a))
			}
		}
	}
}

// pinNext pins a memory whose programs are not loaded yet, beside the one of the attached programs.
func (dp *Datapath) pinNext(m *sharedMap) error {
	if dp.dir == "" {
		return nil
	}
	if !dp.inPlace() { // Repin will make this pin together with the lost ones
		dp.log.Warn("sets without a pin: the directory of the pins is gone", "dir", dp.dir)
		return nil
	}
	if err := unpin(dp.lock, nextMembersPin); err != nil {
		return err
	}
	if err := m.m.Pin(filepath.Join(dp.dir, nextMembersPin)); err != nil {
		return fmt.Errorf("pinning map members in %s: %w", dp.dir, explain(err))
	}
	dp.sets.nextPinned = true
	return nil
}

// commitPin makes the pin of the next memory the pin of the attached programs. If the process dies before that, the next one finds
// the memory of before, which has the same sets, and loads programs that read it.
func (dp *Datapath) commitPin() {
	if !dp.sets.nextPinned {
		return
	}
	dp.sets.nextPinned = false
	dir := int(dp.lock.Fd())
	if err := unix.Renameat(dir, nextMembersPin, dir, membersPin); err != nil {
		// A pin of other elements than the programs find is worse than none. Repin makes a missing one.
		dp.log.Error("exchanging the pin of map members", "dir", dp.dir, "error", errors.Join(err, unpin(dp.lock, membersPin)))
	}
}

// dropNextPin takes back pinNext.
func (dp *Datapath) dropNextPin() error {
	if !dp.sets.nextPinned {
		return nil
	}
	dp.sets.nextPinned = false
	return unpin(dp.lock, nextMembersPin)
}
