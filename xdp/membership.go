package xdp

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"
)

// Pairs of a set and a field that programs ask for, at each level of headers: FT_PAIRS and FT_INNER_PAIRS of bpf/config.h.
const (
	outerPairs = 12
	innerPairs = 9

	answerShift = 20 // FT_SET_SHIFT: where the answers begin in Headers.Label
)

// mostPairs is the number of pairs by level.
var mostPairs = [2]int{outerPairs, innerPairs}

// Field is an address in the headers of a packet. The zero Field is the IPv4 source of the outer headers.
type Field struct {
	Inner       bool // of the packet inside a tunnel
	Destination bool
	IPv6        bool
}

// String describes the field in words.
func (f Field) String() string {
	words := []string{"IPv4", "source"}
	if f.IPv6 {
		words[0] = "IPv6"
	}
	if f.Destination {
		words[1] = "destination"
	}
	if f.Inner {
		words = append([]string{"inner"}, words...)
	}
	return strings.Join(words, " ")
}

// level is the level of headers: 0 outside, 1 inside.
func (f Field) level() int {
	if f.Inner {
		return 1
	}
	return 0
}

// flag tells that a packet has the field.
func (f Field) flag() Flags {
	if f.IPv6 {
		return FlagIPv6
	}
	return FlagIPv4
}

// address returns the field of a packet, if the packet has it.
func (f Field) address(k *Key) (netip.Addr, bool) {
	h := &k.Out
	if f.Inner {
		h = &k.In
	}
	if h.Flags&f.flag() == 0 {
		return netip.Addr{}, false
	}
	size, at := 4, 0
	if f.IPv6 {
		size = 16
	}
	if f.Destination {
		at = size
	}
	return netip.AddrFromSlice(h.Addr[at:][:size])
}

// pair is a set and a field. Its place among the pairs of a level is the bit of the answer.
type pair struct {
	used  bool
	set   int // the number of the set
	field Field
}

// Fields of a pair in the constants: FT_P_DST and FT_P_IPV6 of bpf/sets.h. The lower bits are the number of the set.
const (
	pairDestination = 1 << 6
	pairIPv6        = 1 << 7
)

func (p pair) constant() uint8 {
	c := uint8(p.set)
	if p.field.Destination {
		c |= pairDestination
	}
	if p.field.IPv6 {
		c |= pairIPv6
	}
	return c
}

func pairOf(level int, constant uint8) pair {
	return pair{true, int(constant & (pairDestination - 1)), Field{
		Inner:       level == 1,
		Destination: constant&pairDestination != 0,
		IPv6:        constant&pairIPv6 != 0,
	}}
}

// needOfPair is the bit of a pair in the layers that programs need.
func needOfPair(level, bit int) uint64 { return needSet << bit << (level * needInner) }

// answersOf returns the answers in a key, or those that a mask looks at: a bit for each pair of the level.
func answersOf(h *Headers) uint64 { return uint64(binary.BigEndian.Uint32(h.Label[:]) >> answerShift) }

// Membership is the question whether a set has an address of a packet. Programs ask it for each packet with such an address, once, as
// long as some rule has the condition.
type Membership struct {
	field Field
	bit   int
}

// Condition lets a rule match only packets whose address is in the set, or, if in is false, only packets whose address is not in it. A
// packet without the address does not match either way.
func (m Membership) Condition(r *Rule, in bool) {
	key, mask := &r.Key.Out, &r.Mask.Out
	if m.field.Inner {
		key, mask = &r.Key.In, &r.Mask.In
	}
	key.Flags |= m.field.flag()
	mask.Flags |= m.field.flag()

	setAnswer(m.field.level(), &r.Key, m.bit, in)
	setAnswer(m.field.level(), &r.Mask, m.bit, true)
}

// setAnswer puts an answer into a key.
func setAnswer(level int, k *Key, bit int, is bool) {
	h := []*Headers{&k.Out, &k.In}[level]
	label := binary.BigEndian.Uint32(h.Label[:]) &^ (1 << (answerShift + bit))
	if is {
		label |= 1 << (answerShift + bit)
	}
	binary.BigEndian.PutUint32(h.Label[:], label)
}

// Ask puts the answers of the open sets into the key of a packet, as programs do before they search. Use it for [Model.Find].
func (dp *Datapath) Ask(k *Key) error {
	if err := dp.enter(); err != nil {
		return err
	}
	defer dp.mu.Unlock()
	if dp.sets.memory != nil {
		dp.sets.answer(dp.sets.memory.words, k)
	}
	return nil
}

// Membership returns the question whether the set has the field of a packet. It is the same one for all rules, and lasts until
// CloseSets. The error is an ErrFull if programs ask for as many pairs of a set and a field as they can: 12 of outer headers and 9 of
// inner ones.
func (dp *Datapath) Membership(set string, f Field) (Membership, error) {
	if err := dp.enterChanges(); err != nil {
		return Membership{}, err
	}
	defer dp.leaveChanges()

	bit, err := dp.bitOf(set, f)
	if err != nil {
		return Membership{}, fmt.Errorf("asking set %s for the %s: %w", set, f, err)
	}
	return Membership{f, bit}, nil
}

// bitOf returns the bit of a pair. If there is none, it takes a free one.
func (dp *Datapath) bitOf(name string, f Field) (int, error) {
	s := dp.sets.byName[name]
	if s == nil {
		return 0, ErrNotFound
	}

	level, free := f.level(), -1
	for bit := range mostPairs[level] {
		p := dp.sets.pairs[level][bit]
		if p == (pair{true, s.number, f}) {
			return bit, nil
		}
		if !p.used && (free < 0 || dp.asks(level, free) && !dp.asks(level, bit)) {
			free = bit
		}
	}
	if free < 0 {
		where := []string{"outer", "inner"}[level]
		return 0, fmt.Errorf("%w: all %d pairs of a set and a field of %s headers are taken: close a set", ErrFull, mostPairs[level], where)
	}

	if dp.asks(level, free) {
		// No rule looks at the bit, but the attached programs still give the answer of the pair that had it before. The record
		// comes behind the programs that do not: if the process dies in between, the next one must not take the old answer for
		// the new one.
		if err := dp.reloadOrStay(); err != nil {
			return 0, err
		}
	}
	dp.sets.setPair(level, free, pair{true, s.number, f})
	return free, nil
}

// asks reports whether the attached programs give an answer in a bit.
func (dp *Datapath) asks(level, bit int) bool { return dp.tables.need&needOfPair(level, bit) != 0 }

// checkRule returns an error if a rule asks for something else than Memberships.
func (ss *sets) checkRule(r *Rule) error {
	if err := ss.checkAnswers(0, &r.Key.Out, &r.Mask.Out); err != nil {
		return err
	}
	return ss.checkAnswers(1, &r.Key.In, &r.Mask.In)
}

// checkAnswers returns an error if a rule looks at an answer that programs do not give, or of an address that the packet need not have.
func (ss *sets) checkAnswers(level int, key, mask *Headers) error {
	for bit := range outerPairs {
		if answersOf(mask)>>bit&1 == 0 {
			continue
		}
		p := ss.pairs[level][bit]
		if !p.used {
			return fmt.Errorf("%w: it looks at bit %d above the flow label, which is no Membership", ErrInvalid, bit)
		}
		if key.Flags&mask.Flags&p.field.flag() == 0 {
			return fmt.Errorf("%w: it asks a set for the %s, and does not require the header", ErrInvalid, p.field)
		}
	}
	return nil
}
