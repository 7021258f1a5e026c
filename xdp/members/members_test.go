package members

import (
	"errors"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
)

const seed = 29

// region is a memory with one set.
type region struct {
	*Set
	words []uint64
	c     Constants
}

const (
	rootWord  = 1
	tableWord = 8
)

func newRegion(t testing.TB, shape Shape) *region {
	t.Helper()
	n, err := shape.Words()
	if err != nil {
		t.Fatal(err)
	}
	words := make([]uint64, tableWord+n+Tail)
	secret := NewSecret()
	s, err := New(words, tableWord, shape, secret)
	if err != nil {
		t.Fatal(err)
	}
	s.Publish(rootWord)
	return &region{s, words, shape.Constants(secret, rootWord)}
}

func (r *region) has(a netip.Addr) bool { return Lookup(r.words, &r.c, a) }

// prefixes is what a set must be.
type prefixes map[netip.Prefix]bool

// cover reports whether some element has the address: at most one map access for each length.
func (p prefixes) cover(a netip.Addr) bool {
	for length := range a.BitLen() + 1 {
		if q, _ := a.Prefix(length); p[q] {
			return true
		}
	}
	return false
}

// drawn draws prefixes that overlap often: of few bits, and of lengths next to the limits of the tables.
type drawn struct{ g *rand.Rand }

func draw(stream uint64) *drawn { return &drawn{rand.New(rand.NewPCG(seed, stream))} }

// address draws an address in few regions, of which many lie beside one another.
func (d *drawn) address() netip.Addr {
	if d.g.IntN(2) == 0 {
		b := [4]byte{10, byte(d.g.IntN(2)), byte(d.g.IntN(3)), byte(d.g.IntN(256))}
		if d.g.IntN(20) == 0 {
			b[0] = byte(d.g.IntN(256))
		}
		return netip.AddrFrom4(b)
	}
	b := [16]byte{0x20, 0x01, 0x0d, byte(d.g.IntN(2))}
	for _, i := range []int{5, 7, 8, 15} {
		b[i] = byte(d.g.IntN(3) * 127)
	}
	if d.g.IntN(20) == 0 {
		b[0] = byte(d.g.IntN(256))
	}
	return netip.AddrFrom16(b)
}

func (d *drawn) prefix() netip.Prefix {
	a := d.address()
	length := d.g.IntN(a.BitLen() + 1)
	if a.Is4() && d.g.IntN(3) > 0 {
		length = 15 + d.g.IntN(18)
	}
	if length < 8 && d.g.IntN(8) > 0 {
		length += 24
	}
	p, _ := a.Prefix(length)
	return p
}

// near draws an address in a prefix or beside it.
func (d *drawn) near(p netip.Prefix) netip.Addr {
	b := p.Addr().AsSlice()
	for i := p.Bits(); i < len(b)*8; i++ {
		if d.g.IntN(2) == 0 {
			b[i/8] ^= 0x80 >> (i % 8)
		}
	}
	if i := p.Bits() - 1; i >= 0 && d.g.IntN(3) == 0 {
		b[i/8] ^= 0x80 >> (i % 8)
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}

// change adds or removes p, as the model does.
func change(t *testing.T, s *Set, live prefixes, p netip.Prefix, add bool) {
	t.Helper()
	f := s.Remove
	if add {
		f = s.Add
	}
	did, err := f(p)
	if errors.Is(err, ErrFresh) {
		s.Reclaim()
		did, err = f(p)
	}
	if err != nil {
		t.Fatal(err)
	}
	if did == (live[p] == add) {
		t.Fatalf("%v: a change is reported as %v, and the set had it: %v", p, did, live[p])
	}
	if add {
		live[p] = true
	} else {
		delete(live, p)
	}
}

func TestSetIsThePrefixesAfterEachChange(t *testing.T) {
	for history := range uint64(30) {
		d := draw(history)
		r := newRegion(t, Shape{IPv4: []int{2000, 1 << topBits}[history%2], IPv6: 2000})
		live := prefixes{}
		var known []netip.Prefix
		for step := range 2000 {
			p := d.prefix()
			if len(known) > 20 && d.g.IntN(2) == 0 {
				p = known[d.g.IntN(len(known))]
			}
			known = append(known, p)
			change(t, r.Set, live, p, d.g.IntN(5) > 1)
			for range 10 {
				a := d.near(known[d.g.IntN(len(known))])
				if got, want := r.has(a), live.cover(a); got != want {
					t.Fatalf("history %d, step %d: %v is in the set: %v, and should be: %v", history, step, a, got, want)
				}
			}
			if step%50 == 0 {
				r.Reclaim()
			}
		}
		checkElements(t, r.Set, live)
		checkEmptied(t, r, live)
	}
}

func checkElements(t *testing.T, s *Set, live prefixes) {
	t.Helper()
	n := 0
	for p := range s.All() {
		n++
		if !live[p] || !s.Has(p) {
			t.Errorf("the set lists %v, which it should not have", p)
		}
	}
	if n != len(live) || s.Len() != len(live) {
		t.Errorf("the set lists %d elements, counts %d and should have %d", n, s.Len(), len(live))
	}
}

// checkEmptied removes all elements, and looks for what they left behind.
func checkEmptied(t *testing.T, r *region, live prefixes) {
	t.Helper()
	r.Reclaim()
	for p := range live {
		if _, err := r.Remove(p); err != nil {
			t.Fatal(err)
		}
	}
	r.Reclaim()
	l := r.layout
	for _, table := range []struct{ at, n int }{{0, lineWords}, {l.top, topEntries >> l.topShift()}, {l.lines, l.lineCount * lineWords}, {l.filter, 1 << (l.filterBits - 1)}} {
		for i, w := range r.words[r.base+table.at:][:table.n] {
			if w != 0 {
				t.Fatalf("word %d of the table at %d is %#x in an empty set", i, table.at, w)
			}
		}
	}
	if int(r.usedLines) != len(r.freeLines) || int(r.usedEntries) != len(r.freeEntries) {
		t.Errorf("%d lines and %d entries were used, and %d and %d are free", r.usedLines, r.usedEntries, len(r.freeLines), len(r.freeEntries))
	}
	if r.slots4.used != 0 || r.slots6.used != 0 || len(r.filtered) != 0 {
		t.Errorf("%d and %d slots and %d bits are in use in an empty set", r.slots4.used, r.slots6.used, len(r.filtered))
	}
}

func TestEachStoreLeavesTheSetOfBeforeOrAfter(t *testing.T) {
	stores := 0
	for history := range uint64(10) {
		d := draw(100 + history)
		r := newRegion(t, Shape{IPv4: []int{500, 1 << topBits}[history%2], IPv6: 500})
		live := prefixes{}
		var now netip.Prefix
		var adds bool
		var known []netip.Prefix
		r.stored = func() {
			stores++
			if stores%17 != 0 && now.Bits() < 15 {
				return // such a change has thousands
			}
			for i := range 4 {
				a := d.near(now)
				if i > 1 {
					a = d.near(known[d.g.IntN(len(known))])
				}
				got, was := r.has(a), live.cover(a)
				if got != was && (got != adds || !now.Contains(a)) {
					t.Fatalf("%v is in the set: %v, after a store of the change of %v, before which it was: %v", a, got, now, was)
				}
				if !adds && !got && now.Contains(a) {
					live[now] = false
					if live.cover(a) {
						t.Fatalf("%v is missed while %v goes", a, now)
					}
					live[now] = true
				}
			}
		}
		for range 400 {
			now = d.prefix()
			if len(known) > 20 && d.g.IntN(2) == 0 {
				now = known[d.g.IntN(len(known))]
			}
			known = append(known, now)
			adds = d.g.IntN(5) > 1
			change(t, r.Set, live, now, adds)
		}
	}
	t.Logf("%d stores", stores)
}

// A reader is inside of a lookup while any number of changes happen. What some element covers all the time is never missed.
func TestReadersNeverMissWhatIsCoveredThroughout(t *testing.T) {
	r := newRegion(t, Shape{IPv4: 4000, IPv6: 4000})
	d := draw(200)
	var grace sync.RWMutex
	var version atomic.Uint64
	always := slices.Collect(func(yield func(netip.Prefix) bool) {
		for range 40 {
			if !yield(d.prefix()) {
				return
			}
		}
	})
	for _, p := range always {
		if _, err := r.Add(p); err != nil {
			t.Fatal(err)
		}
	}
	r.Reclaim()

	// ladder is covered by one of two elements at any instant: each goes only after the other came.
	ladder := [][2]netip.Prefix{
		{netip.MustParsePrefix("198.51.100.0/24"), netip.MustParsePrefix("198.51.100.7/32")},
		{netip.MustParsePrefix("203.0.0.0/16"), netip.MustParsePrefix("203.0.113.0/25")},
		{netip.MustParsePrefix("192.0.2.0/26"), netip.MustParsePrefix("192.0.2.0/27")},
		{netip.MustParsePrefix("2001:db9::/48"), netip.MustParsePrefix("2001:db9::/64")},
		{netip.MustParsePrefix("2001:dba::/29"), netip.MustParsePrefix("2001:dba::1/128")},
	}
	for _, l := range ladder {
		if _, err := r.Add(l[0]); err != nil {
			t.Fatal(err)
		}
	}

	stop := make(chan struct{})
	var wg sync.WaitGroup
	for reader := range uint64(2) {
		wg.Go(func() {
			d := draw(300 + reader)
			for {
				select {
				case <-stop:
					return
				default:
				}
				grace.RLock()
				for range 20 {
					a := ladder[d.g.IntN(len(ladder))][1].Addr()
					if d.g.IntN(2) == 0 {
						p := always[d.g.IntN(len(always))]
						for a = d.near(p); !p.Contains(a); a = d.near(p) {
						}
					}
					if !r.has(a) {
						t.Errorf("%v is missed", a)
					}
				}
				version.Add(1)
				grace.RUnlock()
				if t.Failed() {
					return
				}
			}
		})
	}

	live := map[netip.Prefix]bool{}
	exchange := func(add bool, p netip.Prefix) {
		if slices.Contains(always, p) {
			return
		}
		f := r.Remove
		if add {
			f = r.Add
		}
		_, err := f(p)
		if errors.Is(err, ErrFresh) || errors.Is(err, ErrFull) {
			grace.Lock() // every reader has ended its lookups
			r.Reclaim()
			grace.Unlock()
			_, err = f(p)
		}
		if err != nil {
			t.Error(err)
		}
		live[p] = add
	}
	for step := 0; step < 4000 && !t.Failed(); step++ {
		l := ladder[d.g.IntN(len(ladder))]
		in, out := l[0], l[1]
		if r.Has(in) {
			in, out = out, in
		}
		exchange(true, in)
		exchange(false, out)
		p := d.prefix()
		exchange(!live[p], p)
	}
	close(stop)
	wg.Wait()
	t.Logf("%d rounds of lookups", version.Load())
}

// An element that covers the address comes while a lookup is under way, after any of its loads, and the one that covered it goes after
// any later load. Without ErrFresh, the lookup misses both.
func TestLookupUnderWayFindsTheElementOfBeforeOrTheNewOne(t *testing.T) {
	for _, shape := range []Shape{{IPv4: 100, IPv6: 100}, {IPv4: 1 << topBits, IPv6: 100}} {
		waited := 0
		for _, pair := range [][2]string{
			{"203.0.0.0/16", "203.0.113.5/32"},
			{"203.0.113.0/24", "203.0.113.5/32"},
			{"203.0.113.0/25", "203.0.113.5/32"},
			{"203.0.113.4/30", "203.0.113.5/32"},
			{"203.0.0.0/16", "203.0.113.0/24"},
			{"2001:db8::/29", "2001:db8::/32"},
			{"2001:db8::/32", "2001:db8::/48"},
			{"2001:db8::/48", "2001:db8::1/128"},
		} {
			wide, narrow := netip.MustParsePrefix(pair[0]), netip.MustParsePrefix(pair[1])
			for _, p := range [][2]netip.Prefix{{wide, narrow}, {narrow, wide}} {
				waited += underWay(t, shape, p[0], p[1], narrow.Addr())
			}
		}
		if waited == 0 {
			t.Error("no removal had to wait")
		}
	}
}

// underWay looks an address up for each pair of loads, and returns how many removals had to wait.
func underWay(t *testing.T, shape Shape, old, fresh netip.Prefix, a netip.Addr) (waited int) {
	for first := 1; ; first++ {
		for second := first; ; second++ {
			r := newRegion(t, shape)
			if _, err := r.Add(old); err != nil {
				t.Fatal(err)
			}
			r.Reclaim()
			loads := 0
			look := reader{words: r.words, c: &r.c}
			look.loaded = func() {
				loads++
				if loads == first {
					if _, err := r.Add(fresh); err != nil {
						t.Fatal(err)
					}
				}
				if loads == second {
					if _, err := r.Remove(old); errors.Is(err, ErrFresh) {
						waited++
					} else if err != nil {
						t.Fatal(err)
					}
				}
			}
			if !look.has(a) {
				t.Errorf("%v is missed: %v comes after load %d, %v goes after load %d", a, fresh, first, old, second)
			}
			if loads < first {
				return waited
			}
			if loads < second {
				break
			}
		}
	}
}

func TestRemovalOfAnElementThatANewOneOverlapsWaits(t *testing.T) {
	r := newRegion(t, Shape{IPv4: 10, IPv6: 10})
	old, fresh, other := netip.MustParsePrefix("192.0.2.1/32"), netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("198.51.100.0/24")
	for _, p := range []netip.Prefix{old, other} {
		if _, err := r.Add(p); err != nil {
			t.Fatal(err)
		}
	}
	r.Reclaim()
	if _, err := r.Add(fresh); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Remove(old); !errors.Is(err, ErrFresh) {
		t.Errorf("removing an element below a new one: %v", err)
	}
	if did, err := r.Remove(other); !did || err != nil {
		t.Errorf("removing an element beside a new one: %v, %v", did, err)
	}
	r.Reclaim()
	if did, err := r.Remove(old); !did || err != nil {
		t.Errorf("removing an element after a grace period: %v, %v", did, err)
	}
	if !r.has(old.Addr()) {
		t.Errorf("%v is not in the set, and %v covers it", old.Addr(), fresh)
	}
}

func TestFullSetKeepsItsElements(t *testing.T) {
	r := newRegion(t, Shape{IPv4: 100, IPv6: 100})
	d := draw(400)
	live := prefixes{}
	full := 0
	for range 3000 {
		a := netip.AddrFrom4([4]byte{byte(d.g.IntN(256)), byte(d.g.IntN(256)), byte(d.g.IntN(256)), 0})
		p, _ := a.Prefix(17 + d.g.IntN(16))
		if d.g.IntN(2) == 0 {
			b := [16]byte{0x20, 1, byte(d.g.IntN(256)), byte(d.g.IntN(256))}
			p, _ = netip.AddrFrom16(b).Prefix(16 + d.g.IntN(113))
		}
		switch _, err := r.Add(p); {
		case errors.Is(err, ErrFull):
			full++
		case err != nil:
			t.Fatal(err)
		default:
			live[p] = true
		}
	}
	if full == 0 {
		t.Error("a set for 200 elements took 3000")
	}
	checkElements(t, r.Set, live)
	for p := range live {
		if !r.has(p.Addr()) {
			t.Errorf("%v is missed", p.Addr())
		}
	}
	for range 10000 {
		a := d.address()
		if got, want := r.has(a), live.cover(a); got != want {
			t.Fatalf("%v is in the set: %v, and should be: %v", a, got, want)
		}
	}
	checkEmptied(t, r, live)
}

func TestSetTakesAsManyElementsAsItsShapeSays(t *testing.T) {
	for _, n := range []int{1, 7, 100, 5000, 70_000} {
		r := newRegion(t, Shape{IPv4: n, IPv6: n})
		d := draw(500)
		for r.n4 < n || r.n6 < n {
			hi, lo := d.g.Uint64(), d.g.Uint64()
			if r.n4 < n {
				p := prefix6(0, hi, 0, 0, 0).Addr().As16()
				if _, err := r.Add(netip.PrefixFrom(netip.AddrFrom4([4]byte(p[12:])), 32)); err != nil {
					t.Fatal(err)
				}
			}
			if r.n6 < n {
				if _, err := r.Add(netip.PrefixFrom(prefix6(hi, lo, 0, 0, 0).Addr(), 128)); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

func TestOneStoreEmptiesOrReplacesASet(t *testing.T) {
	shape := Shape{IPv4: 10}
	n, err := shape.Words()
	if err != nil {
		t.Fatal(err)
	}
	words := make([]uint64, tableWord+2*n+Tail)
	secret := NewSecret()
	c := shape.Constants(secret, rootWord)
	p := netip.MustParsePrefix("192.0.2.1/32")
	first, err := New(words, tableWord, shape, secret)
	if err != nil {
		t.Fatal(err)
	}
	second, err := New(words, tableWord+n, shape, secret)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := first.Add(p); err != nil {
		t.Fatal(err)
	}
	if Lookup(words, &c, p.Addr()) {
		t.Error("a set without a root has an address")
	}
	first.Publish(rootWord)
	if !Lookup(words, &c, p.Addr()) {
		t.Error("a published set lacks an address")
	}
	second.Publish(rootWord)
	if Lookup(words, &c, p.Addr()) {
		t.Error("an address is in the set that took the place of another")
	}
	first.Publish(rootWord)
	Retract(words, rootWord)
	if Lookup(words, &c, p.Addr()) {
		t.Error("an address is in an emptied set")
	}
}

func TestPrefixesAndShapesThatCannotBeAreRefused(t *testing.T) {
	r := newRegion(t, Shape{IPv4: 1})
	if _, err := r.Add(netip.Prefix{}); !errors.Is(err, ErrInvalid) {
		t.Errorf("adding no prefix: %v", err)
	}
	if _, err := r.Remove(netip.Prefix{}); !errors.Is(err, ErrInvalid) {
		t.Errorf("removing no prefix: %v", err)
	}
	if _, err := r.Add(netip.MustParsePrefix("2001:db8::/32")); !errors.Is(err, ErrFull) {
		t.Errorf("adding a prefix of a version that the shape lacks: %v", err)
	}
	if _, err := (Shape{IPv4: MostElements + 1}).Words(); !errors.Is(err, ErrInvalid) {
		t.Errorf("sizing too many elements: %v", err)
	}
	if _, err := New(make([]uint64, 100), 8, Shape{IPv4: 1}, NewSecret()); !errors.Is(err, ErrInvalid) {
		t.Errorf("a memory that is too small: %v", err)
	}
}

// A caller that needs a greater memory moves its sets, and may go back if programs do not load.
func TestSetMovedToAnotherMemoryGoesOnThere(t *testing.T) {
	for history := range uint64(4) {
		d := draw(700 + history)
		shape := Shape{IPv4: []int{2000, 1 << topBits}[history%2], IPv6: 2000}
		r := newRegion(t, shape)
		live := prefixes{}
		var known []netip.Prefix
		for step := range 1500 {
			p := d.prefix()
			if len(known) > 20 && d.g.IntN(2) == 0 {
				p = known[d.g.IntN(len(known))]
			}
			known = append(known, p)
			change(t, r.Set, live, p, d.g.IntN(5) > 1)
			if step%300 != 0 {
				continue
			}

			words := make([]uint64, len(r.words)+lineWords*step)
			base := tableWord + lineWords*(step/10)
			moved, err := r.CopyTo(words, base)
			if err != nil {
				t.Fatal(err)
			}
			moved.Publish(rootWord)
			before := r.words
			r.Set, r.words = moved, words
			for range 500 {
				a := d.near(known[d.g.IntN(len(known))])
				if was, is, want := Lookup(before, &r.c, a), r.has(a), live.cover(a); was != want || is != want {
					t.Fatalf("%v is in the set: %v before the move and %v behind it, and should be: %v", a, was, is, want)
				}
			}
		}
		checkElements(t, r.Set, live)
		checkEmptied(t, r, live)
	}
	r := newRegion(t, Shape{IPv4: 1})
	if _, err := r.CopyTo(r.words[:100], tableWord); !errors.Is(err, ErrInvalid) {
		t.Errorf("a memory that is too small: %v", err)
	}
}
