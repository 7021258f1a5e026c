package tree

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	labseed "github.com/flowtally/flowtally/internal/lab/seed"
)

// rearrange builds all trees anew in free memory, with the same rules.
func (s *Set) rearrange() error {
	return s.replace(slices.Collect(maps.Values(s.ruleByEntry)), 0)
}

// checkMemory compares the books of the allocator with the blocks reachable from the roots.
func checkMemory(t interface {
	Helper()
	Fatalf(string, ...any)
}, s *Set) {
	t.Helper()
	seen := map[int]int{}
	var walk func(n Node)
	walk = func(n Node) {
		if n.size() == 0 {
			return
		}
		seen[n.Base()]++
		if state := s.mem.state[n.Base()/2]; state == 0 || state&freeBit != 0 || 2<<(state-1) < n.size() {
			t.Fatalf("node %#x: the block at %d has state %#x", uint64(n), n.Base(), state)
		}
		for i := range n.size() {
			switch n.Kind() {
			case KindCut:
				walk(s.mem.load(n.Base() + i))
			case KindFork:
				if i%2 == 0 {
					walk(s.mem.load(n.Base() + i))
				}
			}
		}
	}
	for c := range Classes {
		walk(s.mem.load(c))
	}
	used := headerWords
	for base, n := range seen {
		used += 2 << (s.mem.state[base/2] - 1)
		if n != int(s.mem.refs[uint32(base)])+1 {
			t.Fatalf("block %d: %d nodes lead to it, %d references", base, n, s.mem.refs[uint32(base)]+1)
		}
	}
	for _, base := range s.mem.retired {
		if seen[int(base)] != 0 {
			t.Fatalf("block %d is retired, and a node leads to it", base)
		}
	}
	if got := used + s.mem.waiting + s.mem.free; got != len(s.mem.words) {
		t.Fatalf("%d words used, %d retired, %d free: %d of %d", used, s.mem.waiting, s.mem.free, got, len(s.mem.words))
	}
}

// drawn makes rules that overlap much: their fields have few values.
type drawn struct {
	g    *rand.Rand
	next uint64
}

func (d *drawn) rule() Rule {
	d.next++
	var r Rule
	r.Rank, r.Entry = uint64(d.g.IntN(1<<20))<<32|d.next, Entry(d.next<<5|1)
	flags := []uint16{0, flagIPv4, flagIPv4, flagIPv4, flagIPv6}[d.g.IntN(5)]
	r.Key[0], r.Mask[0] = word0(0, 0, 0, flags), word0(0, 0, 0, flags)
	if flags == flagIPv4 && d.g.IntN(4) > 0 {
		src, dst := d.g.IntN(33), 8*d.g.IntN(5)
		r.Mask[1] = word1(uint32(^uint64(0)<<(32-src)), uint32(^uint64(0)<<(32-dst)))
		r.Key[1] = d.address() & r.Mask[1]
	}
	if flags == flagIPv6 && d.g.IntN(2) > 0 {
		r.Mask[3] = ^uint64(0) << d.g.IntN(64)
		r.Key[3] = d.g.Uint64() & r.Mask[3]
	}
	for i := range 2 {
		ports := [2]*Range{&r.Ports[i].Src, &r.Ports[i].Dst}[d.g.IntN(2)]
		switch d.g.IntN(5) {
		case 0:
			a, b := uint16(d.g.IntN(65536)), uint16(d.g.IntN(65536))
			*ports = Range{min(a, b), max(a, b)}
		case 1:
			p := uint16(1 + d.g.IntN(4))
			*ports = Range{p, p}
		case 2:
			*ports = Range{1024, 65535}
		}
	}
	return r
}

func (d *drawn) address() uint64 {
	return word1(uint32(d.g.IntN(4))<<30|uint32(d.g.IntN(3)), uint32(d.g.IntN(5))<<24|uint32(d.g.IntN(256)))
}

// key is a key that some of the rules may match.
func (d *drawn) key(rules []Rule) (k Key) {
	if len(rules) > 0 && d.g.IntN(4) > 0 {
		r := &rules[d.g.IntN(len(rules))]
		for w := range k {
			k[w] = r.Key[w] | d.g.Uint64()&^r.Mask[w]
		}
		for level, p := range r.Ports {
			v := be64(k[portWords[level]])
			for i, pr := range [2]Range{p.Src, p.Dst} {
				if pr != (Range{}) {
					v = v&^(0xffff<<(48-16*i)) | uint64(pr.First+uint16(d.g.IntN(int(pr.Last-pr.First)+1)))<<(48-16*i)
				}
			}
			k[portWords[level]] = be64(v)
		}
	} else {
		for w := range k {
			k[w] = d.g.Uint64()
		}
		k[1] = d.address()
	}
	v4, v6 := testClass.IPv4, testClass.IPv6
	if k[0]&v4 != 0 {
		k[0] &^= v6
	}
	return k
}

func TestChangingSetAgreesWithTheLinearMatcher(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := &drawn{g: rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))}
		s := New(make([]uint64, 1<<16), Options{Class: testClass})
		live := map[Entry]Rule{}
		t.Repeat(map[string]func(*rapid.T){
			"exchange": func(t *rapid.T) {
				var remove []Entry
				var add []Rule
				all := slices.Sorted(maps.Keys(live))
				d.g.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
				remove = all[:min(len(all), rapid.SampledFrom([]int{0, 0, 0, 1, 2, 30}).Draw(t, "remove"))]
				for range rapid.SampledFrom([]int{0, 1, 2, 20, 40}).Draw(t, "add") {
					r := d.rule()
					if len(remove) > 0 && d.g.IntN(2) == 0 {
						o := live[remove[d.g.IntN(len(remove))]]
						r.Key, r.Mask, r.Ports = o.Key, o.Mask, o.Ports
					}
					add = append(add, r)
				}
				if err := s.Exchange(remove, add); err != nil {
					t.Fatalf("exchanging %d for %d of %d rules: %v", len(remove), len(add), len(live), err)
				}
				for _, e := range remove {
					delete(live, e)
				}
				for _, r := range add {
					live[r.Entry] = r
				}
			},
			"rearrange": func(t *rapid.T) {
				if d.g.IntN(4) > 0 {
					return
				}
				if err := s.rearrange(); err != nil {
					t.Fatal(err)
				}
			},
			"": func(t *rapid.T) {
				checkMemory(t, s)
				s.Reclaim()
				var rules []Rule
				for _, e := range slices.Sorted(maps.Keys(live)) {
					rules = append(rules, live[e])
				}
				match := entries(rules)
				for range 30 {
					k := d.key(rules)
					if got, want := s.Lookup(&k, match), best(rules, &k); got != want {
						t.Fatalf("%d rules, key %x: entry %#x, the linear matcher has %#x", len(rules), k, got, want)
					}
				}
			},
		})
	})
}

// A flow with sets has several rules of one rank. Two of them may leave the same leaf in one change, beside a rule of another tree.
func TestRulesOfOneRankLeaveTheTreesTogether(t *testing.T) {
	d := &drawn{g: labseed.Rand(t)}
	s := New(make([]uint64, 1<<16), Options{Class: testClass})
	for round := range 2000 {
		var add []Rule
		var all []Entry
		for range 1 + d.g.IntN(10) {
			r := d.rule()
			r.Rank = uint64(d.g.IntN(3))
			add = append(add, r)
			all = append(all, r.Entry)
		}
		if err := s.Exchange(nil, add); err != nil {
			t.Fatal(err)
		}
		if err := s.Exchange(all, nil); err != nil {
			t.Fatal(err)
		}
		s.Reclaim()

		for c := range Classes {
			for g := range s.groupCount(c) {
				if !s.empty(s.mem.load(s.groupAt(c, g))) {
					t.Fatalf("round %d: class %d, tree %d has a rule of a set without rules", round, c, g)
				}
			}
		}
	}
}

// empty reports whether no rule is below a node.
func (s *Set) empty(n Node) bool {
	if n.Kind() != KindCut {
		return n == 0
	}
	for i := range n.size() {
		if !s.empty(s.mem.load(n.Base() + i)) {
			return false
		}
	}
	return true
}
