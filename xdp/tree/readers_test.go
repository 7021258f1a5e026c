package tree

import (
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
)

// version is a state of the set and the next one: while a change runs, a lookup may find either.
type version struct{ before, after []Rule }

// Rules are exchanged and trees rearranged under concurrent lookups. Memory is reclaimed once all lookups begun earlier have ended.
func TestReadersFindTheRuleOfBeforeOrAfterAChange(t *testing.T) {
	d := &drawn{g: rand.New(rand.NewPCG(seed, 1))}
	s := New(make([]uint64, 1<<16), Options{Class: testClass})
	var now atomic.Pointer[version]
	now.Store(&version{})
	var rules sync.Map
	var grace sync.RWMutex
	stop := make(chan struct{})
	var wg sync.WaitGroup
	var looked atomic.Int64
	for reader := range 2 {
		wg.Go(func() {
			d := &drawn{g: rand.New(rand.NewPCG(seed, 2+uint64(reader)))}
			match := func(e Entry, k *Key) (uint64, bool) {
				v, _ := rules.Load(e)
				r := v.(*Rule)
				return r.Rank, plain(r, k)
			}
			for {
				select {
				case <-stop:
					return
				default:
				}
				first := now.Load()
				k := d.key(first.after)
				grace.RLock()
				got := Lookup(s.mem.words, testClass, &k, match)
				grace.RUnlock()
				looked.Add(1)
				if now.Load() != first {
					continue // too long ago to say which of the rules were there
				}
				if got != best(first.before, &k) && got != best(first.after, &k) {
					t.Errorf("key %x: entry %#x, the linear matcher has %#x and then %#x", k, got, best(first.before, &k), best(first.after, &k))
					return
				}
			}
		})
	}
	live := []Rule{}
	for step := range 150 {
		var remove []Entry
		var add []Rule
		gone := min(len(live), d.g.IntN(4))
		for range 1 + d.g.IntN(4) {
			r := d.rule()
			if gone > 0 && d.g.IntN(2) == 0 {
				o := live[d.g.IntN(gone)] // a replacement of a removed rule
				r.Key, r.Mask, r.Ports = o.Key, o.Mask, o.Ports
			}
			add = append(add, r)
			rules.Store(r.Entry, &r)
		}
		for _, r := range live[:gone] {
			remove = append(remove, r.Entry)
		}
		next := append(slices.Clone(live[gone:]), add...)
		now.Store(&version{live, next})
		if err := s.Exchange(remove, add); err != nil {
			t.Fatal(err)
		}
		live = next
		now.Store(&version{live, live})
		if step%10 == 0 {
			if err := s.rearrange(); err != nil {
				t.Fatal(err)
			}
		}
		for seen := looked.Load(); looked.Load() < seen+20 && !t.Failed(); {
			grace.Lock() // every reader has ended its lookup
			grace.Unlock()
		}
		grace.Lock()
		s.Reclaim()
		grace.Unlock()
		checkMemory(t, s)
	}
	close(stop)
	wg.Wait()
}

// Keys are looked up after every single store of a change.
func TestEveryStoreLeavesTheResultOfBeforeOrAfter(t *testing.T) {
	stores := 0
	for draw := range uint64(40) {
		stores += everyStore(t, &drawn{g: rand.New(rand.NewPCG(seed, 50+draw))})
	}
	t.Logf("%d stores", stores)
}

func everyStore(t *testing.T, d *drawn) (stores int) {
	s := New(make([]uint64, 1<<16), Options{Class: testClass})
	var live, next, known []Rule
	var match Match
	s.mem.stored = func() {
		stores++
		for range 10 {
			k := d.key(known)
			if got := s.Lookup(&k, match); got != best(live, &k) && got != best(next, &k) {
				t.Fatalf("key %x: entry %#x, the linear matcher has %#x and then %#x", k, got, best(live, &k), best(next, &k))
			}
		}
	}
	for step := range 100 {
		gone := min(len(live), d.g.IntN(6))
		var remove []Entry
		var add []Rule
		d.g.Shuffle(len(live), func(i, j int) { live[i], live[j] = live[j], live[i] })
		for _, r := range live[:gone] {
			remove = append(remove, r.Entry)
		}
		for range 2 + d.g.IntN(5) {
			r := d.rule()
			if gone > 0 && d.g.IntN(2) == 0 {
				o := live[d.g.IntN(gone)] // a replacement of a removed rule
				r.Key, r.Mask, r.Ports = o.Key, o.Mask, o.Ports
			}
			add = append(add, r)
		}
		known = slices.Concat(live, add)
		next, match = known[gone:], entries(known)
		if err := s.Exchange(remove, add); err != nil {
			t.Fatal(err)
		}
		live = next
		if step%20 == 19 {
			if err := s.rearrange(); err != nil {
				t.Fatal(err)
			}
		}
		s.Reclaim()
	}
	return stores
}
