package tree

import (
	"errors"
	"fmt"
	"testing"

	"github.com/flowtally/flowtally/internal/lab/classbench"
)

// hard are sets that trees are bad at.
func hard(n int) map[string][]Rule {
	out := map[string][]Rule{}
	for i := range n {
		every := Rule{Rank: uint64(i), Entry: Entry(i+1)<<5 | 1}
		out["everything"] = append(out["everything"], every)
		nested := every
		nested.Ports[0] = Ranges{Range{uint16(i % 32768), uint16(65535 - i%32768)}, Range{1, 65534}}
		nested.Rank = uint64(n - i)
		out["nested"] = append(out["nested"], nested)
		crossed := every
		crossed.Key[0], crossed.Mask[0] = testClass.IPv4, testClass.IPv4
		if i%2 == 0 {
			crossed.Mask[1], crossed.Key[1] = word1(^uint32(0), 0), word1(uint32(i), 0)
		} else {
			crossed.Mask[1], crossed.Key[1] = word1(0, ^uint32(0)), word1(0, uint32(i))
		}
		out["crossed"] = append(out["crossed"], crossed)
		same := crossed
		same.Mask[1], same.Key[1] = word1(^uint32(0), ^uint32(0)), word1(1, 2)
		same.Ports[0].Dst = Range{uint16(i % 60000), uint16(i%60000 + 5000)}
		out["same"] = append(out["same"], same)
	}
	return out
}

// These sets overlap in bad ways. The trees must be right, or the error must be ErrDense.
func TestHardSetsAreRightOrRefused(t *testing.T) {
	n := 4000
	for name, rules := range hard(n) {
		t.Run(name, func(t *testing.T) {
			s := New(make([]uint64, 1<<19), Options{Class: testClass})
			if err := s.Build(rules); err != nil {
				if !errors.Is(err, ErrDense) {
					t.Fatal(err)
				}
				t.Logf("%d rules are refused: %v", n, err)
				return
			}
			checkMemory(t, s)
			t.Logf("%.1f words a rule", float64(len(s.mem.words)-s.mem.free)/float64(n))
			match := entries(rules)
			for i := range 300 {
				var k Key
				r := &rules[i*n/300]
				k = r.Key
				k[0] |= word0(uint16(i*197), uint16(i*331+17), 6, flagIPv4)
				if r.Mask[1] == 0 {
					k[1] = word1(uint32(i), uint32(i+1))
				}
				if got, want := s.Lookup(&k, match), best(rules, &k); got != want {
					t.Fatalf("key %x: entry %#x, the linear matcher has %#x", k, got, want)
				}
			}
		})
	}
}

// The same set is built in less and less memory. Its trees become lists, and at last do not fit.
func TestSetThatDoesNotFitLeavesTheOldOne(t *testing.T) {
	from := classbench.Generate(classbench.FW, 1000, seed)
	rules := rulesOf(from)
	refused := false
	for words := 1 << 16; words >= 512; words /= 2 {
		s := New(make([]uint64, words), Options{Class: testClass})
		if err := s.Build(rules[:10]); err != nil {
			t.Fatal(err)
		}
		s.Reclaim()
		have := rules[:10]
		err := s.Exchange(nil, rules[10:])
		if err == nil {
			have = rules
		} else if !errors.Is(err, ErrFull) {
			t.Fatalf("%d words: %v", words, err)
		}
		refused = refused || err != nil
		checkMemory(t, s)
		s.Reclaim()
		match := entries(rules)
		for _, p := range classbench.Points(from, 300, seed) {
			k := keyOf(p)
			if got, want := s.Lookup(&k, match), best(have, &k); got != want {
				t.Fatalf("%d words: entry %#x, the linear matcher has %#x", words, got, want)
			}
		}
	}
	if !refused {
		t.Error("1,000 rules fit into 512 words")
	}
}

// Half of the memory is free, in small blocks.
func TestBuildFitsIntoFragmentedMemory(t *testing.T) {
	from := classbench.Generate(classbench.FW, 1000, seed)
	rules := rulesOf(from)
	for block := 1024; block >= 64; block /= 2 {
		s := New(make([]uint64, 1<<17), Options{Class: testClass})
		var blocks []int
		for base, ok := s.mem.alloc(block); ok; base, ok = s.mem.alloc(block) {
			blocks = append(blocks, base)
		}
		for i, base := range blocks {
			if i%2 == 0 {
				s.mem.release(base)
			}
		}
		if err := s.Build(rules); err != nil {
			t.Fatalf("%d words are free in blocks of %d: %v", s.mem.free, block, err)
		}
		match := entries(rules)
		for _, p := range classbench.Points(from, 300, seed) {
			k := keyOf(p)
			if got, want := s.Lookup(&k, match), best(rules, &k); got != want {
				t.Fatalf("blocks of %d words: entry %#x, the linear matcher has %#x", block, got, want)
			}
		}
		t.Logf("blocks of %d words: %d words in use", block, s.Words()-len(blocks)/2*block)
	}
}

func TestBuildAsksForRetiredMemoryBeforeWorseTrees(t *testing.T) {
	from := classbench.Masked(2000, 200, seed)
	rules := rulesOf(from)
	s := New(make([]uint64, 1<<15), Options{Class: testClass})
	if err := s.Build(rules); err != nil {
		t.Fatal(err)
	}
	used := func() int { return len(s.mem.words) - s.mem.free - s.mem.waiting }
	first := used()
	var err error
	for range 10 {
		if err = s.rearrange(); err != nil {
			break
		}
		if used() != first {
			t.Fatalf("trees of %d words, %d at first", used(), first)
		}
	}
	if !errors.Is(err, ErrFull) {
		t.Fatalf("ten arrangements without a grace period: %v", err)
	}
	s.Reclaim()
	if err := s.rearrange(); err != nil {
		t.Fatal(err)
	}
	if used() != first {
		t.Fatalf("trees of %d words after the memory was reclaimed, %d at first", used(), first)
	}
	checkMemory(t, s)
}

func TestOneRuleTakesFewWordsAmongMany(t *testing.T) {
	for _, n := range []int{100, 10000} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			from := classbench.Masked(n+50, 24, seed)
			rules := rulesOf(from)
			s := New(make([]uint64, 1<<18), Options{Class: testClass})
			if err := s.Build(rules[:n]); err != nil {
				t.Fatal(err)
			}
			for i := n; i < len(rules); i++ {
				free := s.mem.free
				if err := s.Exchange(nil, rules[i:i+1]); err != nil {
					t.Fatal(err)
				}
				if took := free - s.mem.free; took > 1024 {
					t.Errorf("rule %d takes %d words", i, took)
				}
			}
		})
	}
}

func TestRefusedChangeLeavesTheSetUnchanged(t *testing.T) {
	s := New(make([]uint64, 1<<12), Options{Class: testClass})
	r := Rule{Rank: 1, Entry: 33}
	if err := s.Exchange(nil, []Rule{r}); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func() error{
		"unknown entry": func() error { return s.Exchange([]Entry{65}, nil) },
		"entry twice":   func() error { return s.Exchange([]Entry{33, 33}, nil) },
		"known entry":   func() error { return s.Exchange(nil, []Rule{{Rank: 2, Entry: 33}}) },
		"entry 0":       func() error { return s.Exchange(nil, []Rule{{Rank: 2}}) },
		"kind bits":     func() error { return s.Exchange(nil, []Rule{{Rank: 2, Entry: 35}}) },
		"no rank":       func() error { return s.Exchange(nil, []Rule{{Rank: NoRank, Entry: 65}}) },
		"same entries":  func() error { return s.Build([]Rule{r, r}) },
	} {
		if change() == nil {
			t.Errorf("%s: no error", name)
		}
		if got := s.Lookup(&Key{}, entries([]Rule{r})); got != 33 || s.Len() != 1 {
			t.Errorf("%s: entry %#x of %d rules", name, got, s.Len())
		}
		checkMemory(t, s)
	}
}
