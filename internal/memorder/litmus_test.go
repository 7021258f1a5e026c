package memorder

import (
	"testing"
)

// litmus contains tests of memory models, with herd7's names. Each asks whether the ARMv8 model allows the execution of
// its name, which is always a cycle. For tests in the base catalogue of herdtools7
// (catalogue/aarch64/tests/kinds.txt), the expected result is the catalogue's. For the others it follows from the axioms
// of the Arm manual, section B2.3, which TestMachineAgreesWithTheAxioms uses too.
var litmus = []struct {
	name    string
	allowed bool
	make    func(p *program, x, y word)
}{
	// One thread stores two words, and another loads both. May it see only the second store?
	{"MP", true, mp(storeStore(none), loadLoad(none))},
	{"MP+dmb.sys", false, mp(storeStore(full), loadLoad(full))},
	{"MP+dmb.sy+po", true, mp(storeStore(full), loadLoad(none))},
	{"MP+po+dmb.sy", true, mp(storeStore(none), loadLoad(full))},
	{"MP+dmb.st+dmb.ld", false, mp(storeStore(stores), loadLoad(loads))},
	{"MP+dmb.st+po", true, mp(storeStore(stores), loadLoad(none))},
	{"MP+po+dmb.ld", true, mp(storeStore(none), loadLoad(loads))},
	{"MP+dmb.ld+dmb.ld", true, mp(storeStore(loads), loadLoad(loads))},
	{"MP+dmb.st+dmb.st", true, mp(storeStore(stores), loadLoad(stores))},
	{"MP+rel+acq", false, mp(storeStore(release), loadLoad(acquireStrong))},
	{"MP+rel+acqpc", false, mp(storeStore(release), loadLoad(acquire))},
	{"MP+rel+po", true, mp(storeStore(release), loadLoad(none))},
	{"MP+po+acq", true, mp(storeStore(none), loadLoad(acquire))},
	{"MP+dmb.st+addr", false, mp(storeStore(stores), loadLoad(depends))},
	{"MP+dmb.st+ctrl", true, mp(storeStore(stores), loadLoad(controls))},
	// A store-release does not delay later stores, and a load-acquire does not delay earlier loads.
	{"MP+rel.first+dmb.ld", true, mp(storeStore(releaseFirst), loadLoad(loads))},
	{"MP+dmb.st+acq.second", true, mp(storeStore(stores), loadLoad(acquireSecond))},
	// Two threads each store one word and load the other's.
	{"SB", true, sb(none, none)},
	{"SB+dmb.sys", false, sb(full, full)},
	{"SB+dmb.sy+po", true, sb(full, none)},
	{"SB+dmb.st+dmb.ld", true, sb(stores, loads)},
	{"SB+rel-acqs", false, sb(release, release)},
	{"SB+dmb.sy+rel-acq", false, sb(full, release)},
	{"SB+dmb.sy+rel-acqpc", true, sb(full, releaseWeak)},
	// Two threads each load one word and then store the other's.
	{"LB", true, lb(none, none)},
	{"LB+dmb.sys", false, lb(full, full)},
	{"LB+dmb.sy+po", true, lb(full, none)},
	{"LB+dmb.lds", false, lb(loads, loads)},
	{"LB+dmb.sts", true, lb(stores, stores)},
	{"LB+acqs", false, lb(acquire, acquire)},
	{"LB+rels", false, lb(release, release)},
	{"LB+datas", false, lb(depends, depends)},
	{"LB+ctrls", false, lb(controls, controls)},
	{"LB+data+po", true, lb(depends, none)},
	{"LB+addr-pos", false, func(p *program, x, y word) {
		z := p.word("z", 0)
		for _, at := range [][2]word{{x, y}, {y, x}} {
			p.writer(func(t *thread) {
				v, known := t.LoadKnown(at[0], 0)
				t.LoadKnown(z, known)
				t.Store(at[1], 1)
				t.Out(v)
			})
		}
		p.exists(func(r [][]int, _ func(word) int) bool { return r[0][0] == 1 && r[1][0] == 1 })
	}},
	// Two threads store the same two words, in opposite order.
	{"2+2W", true, twoTwo(none, none)},
	{"2+2W+dmb.sys", false, twoTwo(full, full)},
	{"2+2W+dmb.sy+po", true, twoTwo(full, none)},
	{"2+2W+dmb.sts", false, twoTwo(stores, stores)},
	{"2+2W+rels", false, twoTwo(release, release)},
	// One store comes before the other thread's store, and a load or store comes after it.
	{"S", true, s(none, none)},
	{"S+dmb.sys", false, s(full, full)},
	{"S+dmb.sy+po", true, s(full, none)},
	{"S+po+dmb.sy", true, s(none, full)},
	{"S+dmb.st+dmb.ld", false, s(stores, loads)},
	{"S+rel+acq", false, s(release, acquire)},
	{"S+dmb.st+data", false, s(stores, depends)},
	{"R", true, r(none, none)},
	{"R+dmb.sys", false, r(full, full)},
	{"R+dmb.sy+po", true, r(full, none)},
	{"R+po+dmb.sy", true, r(none, full)},
	{"R+dmb.st+dmb.sy", false, r(stores, full)},
	{"R+rel+rel-acq", false, r(release, release)},
	// Only one word.
	{"CoRR", false, func(p *program, x, _ word) {
		p.writer(func(t *thread) { t.Store(x, 1) })
		p.reader(func(t *thread) { t.Out(t.Load(x)); t.Out(t.Load(x)) })
		p.exists(func(r [][]int, _ func(word) int) bool { return r[1][0] == 1 && r[1][1] == 0 })
	}},
	{"CoWW", false, func(p *program, x, _ word) {
		p.writer(func(t *thread) { t.Store(x, 1); t.Store(x, 2) })
		p.exists(func(_ [][]int, last func(word) int) bool { return last(x) == 1 })
	}},
	{"CoRW1", false, func(p *program, x, _ word) {
		p.writer(func(t *thread) { t.Out(t.Load(x)); t.Store(x, 1) })
		p.exists(func(r [][]int, _ func(word) int) bool { return r[0][0] == 1 })
	}},
	{"CoRW2", false, func(p *program, x, _ word) {
		p.writer(func(t *thread) { t.Out(t.Load(x)); t.Store(x, 1) })
		p.writer(func(t *thread) { t.Store(x, 2) })
		p.exists(func(r [][]int, last func(word) int) bool { return r[0][0] == 2 && last(x) == 2 })
	}},
	{"CoWR", false, func(p *program, x, _ word) {
		p.writer(func(t *thread) { t.Store(x, 1); t.Out(t.Load(x)) })
		p.writer(func(t *thread) { t.Store(x, 2) })
		p.exists(func(r [][]int, last func(word) int) bool { return r[0][0] == 2 && last(x) == 1 })
	}},
	// Two threads see two stores in opposite order.
	{"IRIW", true, iriw(none)},
	{"IRIW+dmb.lds", false, iriw(loads)},
	{"IRIW+acqs", false, iriw(acquire)},
	{"IRIW+addrs", false, iriw(depends)},
	// A thread sees a store, and another thread must see it through the first one.
	{"WRC+data+addr", false, wrc(depends, depends)},
	{"WRC+po+addr", true, wrc(none, depends)},
	{"WRC+dmb.ld+dmb.ld", false, wrc(loads, loads)},
	// A load takes the value of its own thread's store before the store is in memory.
	{"PPOCA", true, func(p *program, x, y word) {
		z := p.word("z", 0)
		p.writer(func(t *thread) { t.Store(x, 1); t.StoreFence(""); t.Store(y, 1) })
		p.writer(func(t *thread) {
			v, known := t.LoadKnown(y, 0)
			t.Branch(known)
			t.Store(z, 1)
			_, through := t.LoadKnown(z, 0)
			w, _ := t.LoadKnown(x, through)
			t.Out(v)
			t.Out(w)
		})
		p.exists(func(r [][]int, _ func(word) int) bool { return r[1][0] == 1 && r[1][1] == 0 })
	}},
	{"PPOAA", false, func(p *program, x, y word) {
		z := p.word("z", 0)
		p.writer(func(t *thread) { t.Store(x, 1); t.StoreFence(""); t.Store(y, 1) })
		p.writer(func(t *thread) {
			v, known := t.LoadKnown(y, 0)
			t.StoreKnown(z, 1, known)
			_, through := t.LoadKnown(z, 0)
			w, _ := t.LoadKnown(x, through)
			t.Out(v)
			t.Out(w)
		})
		p.exists(func(r [][]int, _ func(word) int) bool { return r[1][0] == 1 && r[1][1] == 0 })
	}},
	// Two threads swap, as the kernel's locks do. No step may get lost.
	{"2 swaps", false, func(p *program, x, _ word) {
		p.writer(func(t *thread) { t.Swap(x, 0, 1) })
		p.writer(func(t *thread) { t.Swap(x, 0, 2) })
		p.exists(func([][]int, func(word) int) bool { return true })
	}},
}

func TestLitmusResultsEqualHerd7(t *testing.T) {
	for _, l := range litmus {
		p := &program{}
		x, y := p.word("x", 0), p.word("y", 0)
		l.make(p, x, y)
		if got := explore(p).failure != ""; got != l.allowed {
			t.Errorf("%s: allowed = %v, the published result is %v", l.name, got, l.allowed)
		}
	}
	t.Logf("%d litmus tests", len(litmus))
}

// exists sets the outcome of the test, which the model may allow or not.
func (p *program) exists(found func(results [][]int, last func(word) int) bool) {
	p.bad = func(results [][]int, last func(word) int) string {
		if found(results, last) {
			return "found"
		}
		return ""
	}
}

// order is the barrier or dependency between two instructions.
type order int

const (
	none order = iota
	full
	loads
	stores
	release       // the store is a release; a load after it is a strong acquire
	releaseWeak   // the store is a release; a load after it is a weak acquire
	releaseFirst  // the first store is a release
	acquire       // the first load is a weak acquire
	acquireStrong // the first load is a strong acquire
	acquireSecond // the second load is a weak acquire
	depends       // the second instruction depends on the first by its address or data
	controls
)

func (o order) fence(t *thread, known view) view {
	switch o {
	case full:
		t.FullFence("")
	case loads:
		t.LoadFence("")
	case stores:
		t.StoreFence("")
	case controls:
		t.Branch(known)
	case depends:
		return known
	}
	return 0
}

func storeStore(o order) func(t *thread, a word, va int, b word, vb int) {
	return func(t *thread, a word, va int, b word, vb int) {
		t.store(a, va, 0, o == releaseFirst)
		o.fence(t, 0)
		t.store(b, vb, 0, o == release)
	}
}

func loadLoad(o order) func(t *thread, a, b word) {
	return func(t *thread, a, b word) {
		v, known := t.load(a, 0, o == acquire || o == acquireStrong, o == acquireStrong)
		w, _ := t.load(b, o.fence(t, known), o == acquireSecond, false)
		t.Out(v)
		t.Out(w)
	}
}

func storeLoad(o order) func(t *thread, a word, va int, b word) {
	return func(t *thread, a word, va int, b word) {
		t.store(a, va, 0, o == release || o == releaseWeak)
		o.fence(t, 0)
		v, _ := t.load(b, 0, o == release || o == releaseWeak, o == release)
		t.Out(v)
	}
}

func loadStore(o order) func(t *thread, a, b word, vb int) {
	return func(t *thread, a, b word, vb int) {
		v, known := t.load(a, 0, o == acquire, false)
		t.store(b, vb, o.fence(t, known), o == release)
		t.Out(v)
	}
}

func mp(w func(*thread, word, int, word, int), l func(*thread, word, word)) func(*program, word, word) {
	return func(p *program, x, y word) {
		p.writer(func(t *thread) { w(t, x, 1, y, 1) })
		p.reader(func(t *thread) { l(t, y, x) })
		p.exists(func(r [][]int, _ func(word) int) bool { return r[1][0] == 1 && r[1][1] == 0 })
	}
}

func sb(a, b order) func(*program, word, word) {
	return func(p *program, x, y word) {
		p.writer(func(t *thread) { storeLoad(a)(t, x, 1, y) })
		p.writer(func(t *thread) { storeLoad(b)(t, y, 1, x) })
		p.exists(func(r [][]int, _ func(word) int) bool { return r[0][0] == 0 && r[1][0] == 0 })
	}
}

func lb(a, b order) func(*program, word, word) {
	return func(p *program, x, y word) {
		p.writer(func(t *thread) { loadStore(a)(t, x, y, 1) })
		p.writer(func(t *thread) { loadStore(b)(t, y, x, 1) })
		p.exists(func(r [][]int, _ func(word) int) bool { return r[0][0] == 1 && r[1][0] == 1 })
	}
}

func twoTwo(a, b order) func(*program, word, word) {
	return func(p *program, x, y word) {
		p.writer(func(t *thread) { storeStore(a)(t, x, 2, y, 1) })
		p.writer(func(t *thread) { storeStore(b)(t, y, 2, x, 1) })
		p.exists(func(_ [][]int, last func(word) int) bool { return last(x) == 2 && last(y) == 2 })
	}
}

func s(a, b order) func(*program, word, word) {
	return func(p *program, x, y word) {
		p.writer(func(t *thread) { storeStore(a)(t, x, 2, y, 1) })
		p.writer(func(t *thread) { loadStore(b)(t, y, x, 1) })
		p.exists(func(r [][]int, last func(word) int) bool { return r[1][0] == 1 && last(x) == 2 })
	}
}

func r(a, b order) func(*program, word, word) {
	return func(p *program, x, y word) {
		p.writer(func(t *thread) { storeStore(a)(t, x, 1, y, 1) })
		p.writer(func(t *thread) { storeLoad(b)(t, y, 2, x) })
		p.exists(func(r [][]int, last func(word) int) bool { return r[1][0] == 0 && last(y) == 2 })
	}
}

func iriw(o order) func(*program, word, word) {
	return func(p *program, x, y word) {
		p.writer(func(t *thread) { t.Store(x, 1) })
		p.writer(func(t *thread) { t.Store(y, 1) })
		p.reader(func(t *thread) { loadLoad(o)(t, x, y) })
		p.reader(func(t *thread) { loadLoad(o)(t, y, x) })
		p.exists(func(r [][]int, _ func(word) int) bool {
			return r[2][0] == 1 && r[2][1] == 0 && r[3][0] == 1 && r[3][1] == 0
		})
	}
}

func wrc(a, b order) func(*program, word, word) {
	return func(p *program, x, y word) {
		p.writer(func(t *thread) { t.Store(x, 1) })
		p.writer(func(t *thread) { loadStore(a)(t, x, y, 1) })
		p.reader(func(t *thread) { loadLoad(b)(t, y, x) })
		p.exists(func(r [][]int, _ func(word) int) bool { return r[1][0] == 1 && r[2][0] == 1 && r[2][1] == 0 })
	}
}
