package tree

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// A second set in the same memory must not touch any node before Build. Afterwards it must free all memory of the first.
func TestAdoptKeepsTheTreesThatProgramsWalk(t *testing.T) {
	o := Options{Class: ClassBits{Word: 0, IPv4: 1 << 3, IPv6: 1 << 4}}
	mem := make([]uint64, 1<<14)
	rng := rand.New(rand.NewPCG(1, 2))
	s := New(mem, o)
	whole := s.mem.free
	var rules []Rule
	for i := range 200 {
		r := Rule{Rank: uint64(i), Entry: Entry(i+1)<<6 | 1}
		r.Mask[1] = ^uint64(0) << rng.IntN(64)
		r.Key[1] = rng.Uint64() & r.Mask[1]
		rules = append(rules, r)
	}
	if err := s.Build(rules); err != nil {
		t.Fatal(err)
	}
	for i := range 50 {
		if err := s.Exchange([]Entry{rules[i].Entry}, nil); err != nil {
			t.Fatal(err)
		}
	}
	match := func(e Entry, k *Key) (uint64, bool) {
		r := &rules[e>>6-1]
		return r.Rank, k[1]&r.Mask[1] == r.Key[1]
	}
	keys := make([]Key, 1000)
	want := make([]Entry, len(keys))
	for i := range keys {
		keys[i][1] = rules[rng.IntN(len(rules))].Key[1] ^ rng.Uint64()>>rng.IntN(64)
		want[i] = s.Lookup(&keys[i], match)
	}
	after := Adopt(mem, o)
	find := func() (got []Entry) {
		for i := range keys {
			got = append(got, after.Lookup(&keys[i], match))
		}
		return got
	}
	if !slices.Equal(find(), want) {
		t.Fatal("keys find other rules after Adopt")
	}
	if err := after.Build(rules[50:]); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(find(), want) {
		t.Fatal("keys find other rules after Build")
	}
	after.Reclaim()
	if err := after.Build(nil); err != nil {
		t.Fatal(err)
	}
	after.Reclaim()
	if got := after.mem.free; got != whole {
		t.Errorf("%d words are free at the end, want %d", got, whole)
	}
}

func TestAdoptEmptiesInvalidMemory(t *testing.T) {
	o := Options{Class: ClassBits{Word: 0, IPv4: 1 << 3, IPv6: 1 << 4}}
	for name, root := range map[string]Node{
		"outside": newCut(0, 0, 4, 1<<13-8), "odd": newCut(0, 0, 1, 33), "in the header": newList(1, 2, 3), "a list of one": newList(1, 32, 1), "a fork of forks": newFork(32, 1),
	} {
		mem := make([]uint64, 1<<13)
		New(mem, o)
		mem[0], mem[32] = uint64(root), uint64(root)
		s := Adopt(mem, o)
		if mem[0] != 0 || s.mem.free != New(make([]uint64, 1<<13), o).mem.free {
			t.Errorf("%s: root %#x, %d words free", name, mem[0], s.mem.free)
		}
	}
}
