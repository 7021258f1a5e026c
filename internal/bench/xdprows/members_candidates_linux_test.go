package xdprows

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/bits"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/flowtally/flowtally/internal/bench"
	"github.com/flowtally/flowtally/internal/lab/need"
	"github.com/flowtally/flowtally/xdp/members"
)

// loser fills the memory of one of the candidates in bpf/members.bpf.c. Candidates are filled once, and never changed.
type loser struct {
	program string
	filter  int // bits of the bitmap in front of it; 0: none
	layout  membersMembersLayout
	words   []uint64
}

// take returns the offset in bytes of n more words.
func (l *loser) take(n int) uint32 {
	at := len(l.words)
	l.words = append(l.words, make([]uint64, (n+7)/8*8)...)
	return uint32(at * 8)
}

func (l *loser) secret() {
	s := members.NewSecret()
	l.layout.Mul, l.layout.Add, l.layout.Fold = s.Mul[0], s.Mul[1], s.Fold
}

func (l *loser) hash(key uint64) uint64 {
	h := key*l.layout.Mul + l.layout.Add
	h ^= h >> 32
	h *= l.layout.Fold
	return h ^ h>>29
}

// makeSlots takes slots for n keys.
func (l *loser) makeSlots(n int) {
	home := max(bits.Len(uint((n+3)/4-1)), 3)
	l.layout.Slots = l.take((1<<home + 15) * 8)
	l.layout.Shift = uint32(64 - home)
}

// put returns the slot of a key: the first for which same returns true, or a free one.
func (l *loser) put(key uint64, same func(uint64) bool) *uint64 {
	at := int(l.layout.Slots/8) + int(l.hash(key)>>l.layout.Shift)*8
	for i := range 128 {
		if w := &l.words[at+i]; *w == 0 || same(*w) {
			return w
		}
	}
	panic("a key without a slot")
}

func v4(p netip.Prefix) uint32 { b := p.Addr().As4(); return binary.BigEndian.Uint32(b[:]) }

func byLength(list []netip.Prefix, filter int) *loser {
	l := &loser{program: "members_bylength", filter: filter}
	l.secret()
	l.take(8)
	if filter > 0 {
		l.layout.Filter = l.take(1 << (filter - 6))
		l.layout.FilterShift = uint32(32 - filter)
	}
	l.layout.Table = l.take(1 << 16)
	l.makeSlots(len(list))
	for _, p := range list {
		a, length := v4(p), p.Bits()
		if filter > 0 {
			first := a >> l.layout.FilterShift
			n := uint32(1)
			if length < filter {
				n = 1 << (filter - length)
			}
			for i := range n {
				l.words[int(l.layout.Filter/8)+int((first+i)/64)] |= 1 << ((first + i) % 64)
			}
		}
		if length <= 16 {
			for i := range uint32(1) << (16 - length) {
				l.words[int(l.layout.Table/8)+int(a>>16+i)] |= 1
			}
			continue
		}
		l.words[int(l.layout.Table/8)+int(a>>16)] |= 1 << (length - 16)
		key := uint64(a>>(32-length))<<8 | uint64(length)
		*l.put(key, func(w uint64) bool { return w == key }) = key
	}
	return l
}

func codes(list []netip.Prefix) *loser {
	l := &loser{program: "members_codes"}
	l.secret()
	l.take(8)
	l.layout.Table = l.take(1 << 19)
	l.makeSlots(len(list))
	table := l.words[l.layout.Table/8:]
	for _, p := range list {
		a, length := v4(p), p.Bits()
		if length <= 24 {
			for i := range uint32(1) << (24 - length) {
				c := a>>8 + i
				table[c/32] = table[c/32]&^(3<<(c%32*2)) | 1<<(c%32*2)
			}
			continue
		}
		c := a >> 8
		if table[c/32]>>(c%32*2)&3 != 1 {
			table[c/32] |= 2 << (c % 32 * 2)
		}
		if length < 27 {
			panic("a length that this candidate was not taught")
		}
		key := uint64(a>>5 | 1<<27)
		w := l.put(key, func(w uint64) bool { return w>>32 == key })
		*w |= key<<32 | (1<<(1<<(32-length))-1)<<(a&31)
	}
	return l
}

func multibit(list []netip.Prefix) *loser {
	l := &loser{program: "members_multi"}
	l.take(8)
	l.layout.Table = l.take(1 << 15)
	var nodes, leaves []uint64
	entry := func(words []uint64, i uint32) *uint64 { return &words[i/2] }
	set := func(words []uint64, i uint32, v uint64) {
		w := entry(words, i)
		*w = *w&^(0xffffffff<<(i%2*32)) | v<<(i%2*32)
	}
	get := func(words []uint64, i uint32) uint64 { return *entry(words, i) >> (i % 2 * 32) & 0xffffffff }
	table := func() []uint64 { return l.words[l.layout.Table/8:] }
	for _, p := range list {
		a, length := v4(p), p.Bits()
		if length <= 16 {
			for i := range uint32(1) << (16 - length) {
				set(table(), a>>16+i, 1)
			}
			continue
		}
		e := get(table(), a>>16)
		if e == 1 {
			continue
		}
		if e == 0 {
			e = uint64(len(nodes)/128) + 2
			nodes = append(nodes, make([]uint64, 128)...)
			set(table(), a>>16, e)
		}
		node := nodes[(e-2)*128:]
		if length <= 24 {
			for i := range uint32(1) << (24 - length) {
				set(node, a>>8&255+i, 1)
			}
			continue
		}
		e = get(node, a>>8&255)
		if e == 1 {
			continue
		}
		if e == 0 {
			e = uint64(len(leaves)/4) + 2
			leaves = append(leaves, make([]uint64, 4)...)
			set(node, a>>8&255, e)
		}
		for i := range uint32(1) << (32 - length) {
			b := a&255 + i
			leaves[int(e-2)*4+int(b/64)] |= 1 << (b % 64)
		}
	}
	l.layout.Nodes = l.take(len(nodes))
	copy(l.words[l.layout.Nodes/8:], nodes)
	l.layout.Leaves = l.take(len(leaves))
	copy(l.words[l.layout.Leaves/8:], leaves)
	return l
}

// FLOWTALLY_MEMBERS=1000000 measures the candidates of docs/classifier.md, and prints the table. Without it a small set shows that they
// agree.
func TestCandidatesOfSetsAgree(t *testing.T) {
	need.BPF(t)
	n := 20_000
	measured := false
	if v := os.Getenv("FLOWTALLY_MEMBERS"); v != "" {
		measured = true
		var err error
		if n, err = strconv.Atoi(v); err != nil {
			t.Fatal(err)
		}
	}
	cpus, err := bench.CPUs()
	if err != nil {
		t.Fatal(err)
	}
	for _, set := range []struct {
		name string
		n    int
		draw memberDraw
	}{{"hosts", n, hostsAnywhere}, {"list", n, listed}, {"IPv6", n / 10, listed6}, {"levels", n / 10, allLevels}} {
		s := newMemberSet(set.n, set.draw)
		traces := map[string][]netip.Addr{}
		for _, kind := range kinds {
			traces[kind] = s.addresses(kind)
		}
		if s.prefixes[0].Addr().Is6() {
			runCandidate(t, cpus[0], measured, set.name, s, traces, "ours", "members_ours6", nil)
			runCandidate(t, cpus[0], measured, set.name, s, traces, "LPM trie", "members_trie6", nil)
			continue
		}
		runCandidate(t, cpus[0], measured, set.name, s, traces, "ours", "members_ours4", nil)
		runCandidate(t, cpus[0], measured, set.name, s, traces, "LPM trie", "members_trie4", nil)
		for _, l := range []struct {
			name string
			fill func() *loser
		}{
			{"lengths", func() *loser { return byLength(s.prefixes, 0) }},
			{"lengths behind a bitmap of 20 bits", func() *loser { return byLength(s.prefixes, 20) }},
			{"lengths behind a bitmap of 24 bits", func() *loser { return byLength(s.prefixes, 24) }},
			{"codes of 2^24 prefixes", func() *loser { return codes(s.prefixes) }},
			{"multibit trie", func() *loser { return multibit(s.prefixes) }},
			{floor, func() *loser { l := codes(s.prefixes); l.program = "members_load"; return l }},
		} {
			runCandidate(t, cpus[0], measured, set.name, s, traces, l.name, "", l.fill)
		}
	}
}

// floor finds nothing: it loads one line of the slots of the codes for each address.
const floor = "one load"

var kinds = []string{packetsMiss, packetsHit, packetsNear}

func slab(t *testing.T) (kb int) {
	data, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		if f := strings.Fields(line); f[0] == "Slab:" {
			kb, _ = strconv.Atoi(f[1])
		}
	}
	return kb
}

func runCandidate(t *testing.T, cpu int, measured bool, set string, s memberSet, traces map[string][]netip.Addr, name, program string, fill func() *loser) {
	t.Run(set+"/"+name, func(t *testing.T) { compareCandidate(t, cpu, measured, set, s, traces, name, program, fill) })
}

func compareCandidate(t *testing.T, cpu int, measured bool, set string, s memberSet, traces map[string][]netip.Addr, name, program string, fill func() *loser) {
	o := memberSections{shape: members.Shape{IPv4: 1, IPv6: 1}}
	if program == "members_ours4" {
		o.shape = members.Shape{IPv4: len(s.prefixes)}
	}
	if program == "members_ours6" {
		o.shape = members.Shape{IPv6: len(s.prefixes)}
	}
	var l *loser
	start := time.Now()
	if fill != nil {
		l = fill()
		l.layout.Last = uint32(len(l.words) * 8)
		o.other, o.layout, program = len(l.words), &l.layout, l.program
	}
	took := time.Since(start)
	r, err := newMemberRig(o)
	if err != nil {
		t.Fatal(err)
	}
	defer r.close()
	bytes := 0
	start = time.Now()
	switch {
	case l != nil:
		copy(r.other, l.words)
		bytes = len(l.words) * 8
	case strings.Contains(program, "ours"):
		if err := r.fill(s.prefixes); err != nil {
			t.Fatal(err)
		}
		bytes = len(r.words) * 8
	default:
		before := slab(t)
		if err := r.fillTrie(s.prefixes); err != nil {
			t.Fatal(err)
		}
		bytes = (slab(t) - before) << 10
	}
	took += time.Since(start)

	line := fmt.Sprintf("%-6s %-36s %6.1f B %7.0f ms", set, name, float64(bytes)/float64(len(s.prefixes)), float64(took.Microseconds())/1000)
	for _, kind := range kinds {
		if err := r.ask(traces[kind]); err != nil {
			t.Fatal(err)
		}
		n, err := r.found(t.Context(), program)
		if want := map[bool]uint64{true: memberPackets}[kind == packetsHit]; err != nil || n != want && name != floor {
			t.Errorf("%s, %s, %s: %d addresses are in the set, want %d; %v", set, name, kind, n, want, err)
		}
		if !measured {
			continue
		}
		// Whoever shares the core makes the program without a set slower, too: the try with the quickest of those counts.
		var ns [2]float64
		err = bench.Pinned(cpu, func() {
			for range 10 {
				costs, err := bench.InTurns(9, side(t.Context(), r, program), side(t.Context(), r, "members_none"))
				if err != nil {
					t.Error(err)
					return
				}
				if ns[1] == 0 || costs[1] < ns[1] {
					copy(ns[:], costs)
				}
			}
		})
		if err != nil {
			t.Error(err)
		}
		line += fmt.Sprintf("  %s %6.1f times %.1f ns", kind, (ns[0]-ns[1])/ns[1], ns[1])
	}
	t.Log(line)
}

func side(ctx context.Context, r *memberRig, program string) func() (float64, error) {
	return func() (float64, error) { return r.side(program)(ctx, memberPackets) }
}
