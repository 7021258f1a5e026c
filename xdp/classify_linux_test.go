package xdp

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/flowtally/flowtally/internal/lab/seed"
	"github.com/flowtally/flowtally/internal/lab/times"
)

// A small world, so that random rules and packets meet: its packets are UDP and
// TCP over IPv4 and IPv6, whose keys are plain to write down.
type world struct{ rng *rand.Rand }

func (w world) packet() (frame []byte, k Key) {
	b := make([]byte, 14, 80)
	b[5], b[11] = byte(w.rng.IntN(3)), byte(w.rng.IntN(3))
	copy(k.Out.EthDst[:], b[:6])
	copy(k.Out.EthSrc[:], b[6:12])
	h := &k.Out
	h.Flags = FlagEth | FlagL4
	h.Proto = []uint8{6, 17}[w.rng.IntN(2)]
	h.TOS, h.TTL, h.Next = uint8(w.rng.IntN(3)), uint8(w.rng.IntN(3)), h.Proto
	h.L4 = [4]byte{0, byte(w.rng.IntN(4)), 0, byte(w.rng.IntN(4))}
	if w.rng.IntN(2) == 0 {
		h.Flags |= FlagIPv4
		h.EthType = [2]byte{8, 0}
		h.Addr[3], h.Addr[7] = byte(w.rng.IntN(4)), byte(w.rng.IntN(4))
		ip := make([]byte, 20)
		ip[0], ip[1], ip[8], ip[9] = 0x45, h.TOS, h.TTL, h.Proto
		copy(ip[12:], h.Addr[:8])
		b = append(b, ip...)
	} else {
		h.Flags |= FlagIPv6
		h.EthType = [2]byte{0x86, 0xdd}
		h.Addr[7], h.Addr[15], h.Addr[16], h.Addr[31] = byte(w.rng.IntN(2)), byte(w.rng.IntN(4)), byte(w.rng.IntN(2)), byte(w.rng.IntN(4))
		h.Label[3] = byte(w.rng.IntN(2))
		ip := make([]byte, 40)
		binary.BigEndian.PutUint32(ip, 6<<28|uint32(h.TOS)<<20|uint32(h.Label[3]))
		ip[6], ip[7] = h.Proto, h.TTL
		copy(ip[8:], h.Addr[:])
		b = append(b, ip...)
	}
	copy(b[12:], h.EthType[:])
	b = append(b, h.L4[:]...)
	return append(b, make([]byte, 20)...), k
}

// mask is one of few words, as masks of flows are.
func (w world) mask(fields int) (m Key) {
	h := &m.Out
	for range fields {
		switch w.rng.IntN(12) {
		case 0:
			h.Flags |= FlagIPv4 | FlagIPv6
		case 1:
			h.Proto = 0xff
		case 2:
			h.Flags |= FlagL4
			h.L4[1] = 0xff
		case 3:
			h.L4[3] = byte(w.rng.IntN(256))
		case 4:
			h.Addr[3], h.Addr[15] = 0xff, 0xff
		case 5:
			h.Addr[7] = byte(w.rng.IntN(256))
		case 6:
			h.Addr[31] = 3
		case 7:
			h.TOS = 0xff
		case 8:
			h.TTL, h.Label[3] = 1, 1
		case 9:
			h.EthDst[5] = 0xff
		case 10:
			h.EthSrc[5], h.EthType = 0xff, [2]byte{255, 255}
		case 11:
			h.Flags |= FlagEgress
		}
	}
	return m
}

// rule matches values of the world's packets, so it meets others too.
func (w world) rule(mask Key, order, counter uint32) Rule {
	_, k := w.packet()
	r := Rule{Mask: mask, Priority: uint16(w.rng.IntN(4)), Order: order, Counter: counter, Drop: w.rng.IntN(4) == 0}
	for i, m := range mask.words() {
		r.Key.words()[i] = k.words()[i] & m
	}
	if w.rng.IntN(3) == 0 {
		w.ranges(&r)
	}
	return r
}

// ranges gives a rule a range of its destination ports, and half of the time one of its source ports.
func (w world) ranges(r *Rule) {
	k, m := &r.Key.Out, &r.Mask.Out
	k.Flags, m.Flags = k.Flags|FlagL4, m.Flags|FlagL4
	for i, at := range []*Range{&r.Ports[0].Dst, &r.Ports[0].Src}[:1+w.rng.IntN(2)] {
		first := uint16(w.rng.IntN(4))
		*at = Range{First: first, Last: max(1, first+uint16(w.rng.IntN(3)))}
		side := 2 - 2*i
		clear(k.L4[side : side+2])
		clear(m.L4[side : side+2])
	}
}

// change makes other rules of old: with other ranks, actions and counters, some none and some two.
func (w world) change(old []Rule, order *uint32, ids []uint32) (fresh []Rule, next uint32) {
	next = *order
	for _, r := range old {
		if w.rng.IntN(2) == 0 {
			next++
			r.Priority, r.Order = uint16(w.rng.IntN(4)), next
		}
		switch w.rng.IntN(6) {
		case 0:
			r.Drop = !r.Drop
		case 1:
			r.Counter = ids[w.rng.IntN(len(ids))]
		case 2:
			continue
		case 3:
			next++
			two := r
			two.Priority, two.Order = uint16(w.rng.IntN(4)), next
			fresh = append(fresh, two)
		}
		fresh = append(fresh, r)
	}
	return fresh, next
}

// scan is the specification: the rules one after the other.
func scan(rules []Rule, k Key) *Rule {
	var best *Rule
	for i := range rules {
		r := &rules[i]
		match := true
		for w, m := range r.Mask.words() {
			match = match && k.words()[w]&m == r.Key.words()[w]
		}
		for i, p := range []Range{r.Ports[0].Src, r.Ports[0].Dst} {
			port := binary.BigEndian.Uint16(k.Out.L4[2*i:])
			match = match && (p == Range{} || port >= p.First && port <= p.Last)
		}
		if match && (best == nil || r.rank() < best.rank()) {
			best = r
		}
	}
	return best
}

// Random rules change under random packets, with and without new programs. A scan over the rules is the specification.
func TestProgramsDecideLikeAScanOfTheRules(t *testing.T) {
	rng := seed.Rand(t)
	dp := openTest(t, Options{MaxRules: 1024})
	w := world{rng}
	// A test run of an XDP program that is attached nowhere waits for RCU, twice.
	wire := testWire(t)
	attach(t, dp, wire.Near, AttachOptions{Mode: ModeNative, Ingress: true, Egress: true})
	port, err := dp.Port(wire.Near.Name)
	if err != nil {
		t.Fatal(err)
	}
	id := mustCounter(t, dp, "all")
	ids := []uint32{id}
	for i := range 63 {
		ids = append(ids, mustCounter(t, dp, ownerName(i)))
	}
	var rules []Rule
	order := uint32(0)
	hits, runs := 0, 0
	var sum, before Pair
	for round := range times.Of(t, "FLOWTALLY_SCAN_ROUNDS", 20, 20) {
		masks := make([]Key, 1+rng.IntN(8))
		for i := range masks {
			masks[i] = w.mask(1 + rng.IntN(6))
		}
		var add []Rule
		for range 1 + rng.IntN(60) {
			order++
			add = append(add, w.rule(masks[rng.IntN(len(masks))], order, ids[rng.IntN(len(ids))]))
		}
		if err := dp.Add(add...); err != nil {
			if !errors.Is(err, ErrFull) {
				t.Fatalf("round %d: %v", round, err)
			}
		} else {
			rules = append(rules, add...)
		}
		if rng.IntN(3) == 0 || len(rules) > 700 {
			rng.Shuffle(len(rules), func(i, j int) { rules[i], rules[j] = rules[j], rules[i] })
			n := rng.IntN(len(rules))
			if err := dp.Remove(rules[n:]...); err != nil {
				t.Fatalf("round %d: %v", round, err)
			}
			rules = rules[:n]
		}
		if len(rules) > 0 && rng.IntN(2) == 0 {
			rng.Shuffle(len(rules), func(i, j int) { rules[i], rules[j] = rules[j], rules[i] })
			old := slices.Clone(rules[:1+rng.IntN(min(len(rules), 40))])
			fresh, next := w.change(old, &order, ids)
			err := dp.Exchange(old, fresh)
			if err == nil {
				rules = append(rules[len(old):], fresh...)
				order = next
			} else if !errors.Is(err, ErrFull) {
				t.Fatalf("round %d: %v", round, err)
			}
			if err := dp.verify(); err != nil {
				t.Fatalf("round %d: %v", round, err)
			}
		}
		progs := map[Hook]*ebpf.Program{}
		for k, h := range dp.hooks {
			progs[k.hook] = h.prog
		}
		for range 100 {
			frame, k := w.packet()
			h := []Hook{HookIngress, HookEgress}[rng.IntN(2)]
			k.Out.Port = port
			want := []uint32{xdpPass, xdpDrop}
			if h == HookEgress {
				k.Out.Flags |= FlagEgress
				want = []uint32{tcxNext, tcxShot}
			}
			best := scan(rules, k)
			counter := id
			if best != nil {
				counter = best.Counter
				hits++
			}
			before = readOne(t, dp, counter)
			verdict := runFrame(t, progs[h], frame)
			sum = readOne(t, dp, counter)
			runs++
			n, drop := uint64(0), 0
			if best != nil {
				n = 1
				if best.Drop {
					drop = 1
				}
			}
			if sum.Packets-before.Packets != n || sum.Bytes-before.Bytes != n*uint64(len(frame)) || verdict != want[drop] {
				t.Fatalf("round %d, %s, %d rules in %d tuples: key %+v: counted %d packets and %d bytes on %d, verdict %d; want %d of %d bytes, drop %d, rule %+v",
					round, h, len(rules), dp.Stats().Tuples, k.Out, sum.Packets-before.Packets, sum.Bytes-before.Bytes, counter, verdict, n, len(frame), drop, best)
			}
		}
	}
	got := dp.Rules()
	slices.SortFunc(rules, func(a, b Rule) int {
		if a.rank() < b.rank() {
			return -1
		}
		return 1
	})
	if !slices.Equal(got, rules) {
		t.Errorf("rules: got %d, want %d, or others", len(got), len(rules))
	}
	t.Logf("%d packets, %d hits, %d loads of programs, last one %d instructions verified", runs, hits, dp.Stats().Programs, dp.Stats().Insns)
	if hits < runs/4 {
		t.Errorf("only %d of %d packets hit a rule", hits, runs)
	}
}
