package memorder

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
)

// On random programs the machine must have the results of the axiomatic model of the Arm manual (B2.3; as published by
// Pulte, Flur, Deacon, French, Sarkar, Sewell: Simplifying ARM Concurrency, POPL 2018).
func TestMachineAgreesWithTheAxioms(t *testing.T) {
	const programs = 1500
	r := rand.New(rand.NewPCG(1, 2))
	weak := 0
	for i := range programs {
		threads := randomThreads(r)
		operational, axiomatic := byMachine(threads), byAxioms(threads)
		if !maps.Equal(operational, axiomatic) {
			t.Fatalf("program %d\n%v\nthe machine alone: %v\nthe axioms alone: %v", i, threads,
				without(operational, axiomatic), without(axiomatic, operational))
		}
		weak += len(axiomatic)
	}
	t.Logf("%d programs of 2 or 3 threads, %d results, the same by both", programs, weak)
}

func without(a, b map[string]bool) (only []string) {
	for k := range a {
		if !b[k] {
			only = append(only, k)
		}
	}
	return only
}

const accessWords = 2

// An instruction of a random program.
type instruction struct {
	kind  string // load, store, exchange, dmb.sy, dmb.ld, dmb.st
	at    word
	value int    // to store; all stores differ
	order string // acq, acqpc; rel
	dep   string // addr, data or ctrl: how it depends on the earlier load at index on
	on    int
}

func randomThreads(r *rand.Rand) [][]instruction {
	threads := make([][]instruction, 2+r.IntN(2))
	value := 0
	for i := range threads {
		lastLoad := -1
		for n := range 2 + r.IntN(4-len(threads)/3) {
			in := instruction{at: word(r.IntN(accessWords)), on: lastLoad}
			kinds := []string{"load", "load", "load", "store", "store", "store", "exchange", "dmb.sy", "dmb.ld", "dmb.st"}
			if in.kind = kinds[r.IntN(len(kinds))]; n == 0 {
				in.kind = kinds[r.IntN(7)]
			}
			deps := []string{"", "", "addr", "ctrl"}
			switch in.kind {
			case "load":
				in.order = []string{"", "", "acq", "acqpc"}[r.IntN(4)]
				lastLoad = n
			case "store":
				value++
				in.value, in.order, deps[1] = value, []string{"", "", "rel"}[r.IntN(3)], "data"
			case "exchange":
				value++
				in.value, deps = value, []string{""}
			default:
				deps = []string{""}
			}
			if in.on >= 0 {
				in.dep = deps[r.IntN(len(deps))]
			}
			threads[i] = append(threads[i], in)
		}
	}
	return threads
}

// byMachine returns the machine's results: the value of each load, and the last value of each word.
func byMachine(threads [][]instruction) map[string]bool {
	p, found := &program{}, map[string]bool{}
	for w := range accessWords {
		p.word(fmt.Sprint(w), 0)
	}
	for _, code := range threads {
		p.writer(func(t *thread) {
			known := make([]view, len(code))
			for i, in := range code {
				var dep view
				switch in.dep {
				case "addr", "data":
					dep = known[in.on]
				case "ctrl":
					t.Branch(known[in.on])
				}
				switch in.kind {
				case "load":
					var v int
					v, known[i] = t.load(in.at, dep, in.order != "", in.order == "acq")
					t.Out(v)
				case "store":
					t.store(in.at, in.value, dep, in.order == "rel")
					if in.dep == "addr" {
						t.Branch(dep) // later stores wait for an address, as they do for a branch
					}
				case "exchange":
					t.Out(t.exchange(in.at, in.value, func(int) bool { return true }))
				case "dmb.sy":
					t.FullFence("")
				case "dmb.ld":
					t.LoadFence("")
				case "dmb.st":
					t.StoreFence("")
				}
			}
		})
	}
	p.bad = func(results [][]int, last func(word) int) string {
		var loads []int
		for _, r := range results {
			loads = append(loads, r...)
		}
		found[fmt.Sprint(loads, last(0), last(1))] = true
		return ""
	}
	explore(p)
	return found
}

// An event is an instruction of an execution, named by its place. An exchange is two events: a load-acquire and a
// store-release.
type event struct {
	instruction
	thread, place int
	exchange      bool
}

// byAxioms tries every store for each load to read from, and every order of each word's stores. It returns the
// results allowed by the axioms.
func byAxioms(threads [][]instruction) map[string]bool {
	var events []event
	for i, code := range threads {
		for n, in := range code {
			if in.kind != "exchange" {
				events = append(events, event{in, i, n, false})
				continue
			}
			events = append(events, event{instruction{kind: "load", at: in.at, order: "acqpc"}, i, n, true},
				event{instruction{kind: "store", at: in.at, value: in.value, order: "rel"}, i, n, true})
		}
	}
	found := map[string]bool{}
	x := &candidate{events: events, from: make([]int, len(events))}
	for w := range x.order {
		for i, e := range events {
			if e.kind == "store" && int(e.at) == w {
				x.order[w] = append(x.order[w], i)
			}
		}
	}
	permute(x.order[0], func() {
		permute(x.order[1], func() {
			x.read(0, func() {
				if x.atomic() && !x.cyclic(x.coherence) && !x.cyclic(x.orderedBefore) {
					found[x.result()] = true
				}
			})
		})
	})
	return found
}

// candidate is an execution, which the axioms may allow or not.
type candidate struct {
	events []event
	from   []int // the store from which each load reads; -1 for the initial value
	order  [accessWords][]int
}

func permute(s []int, visit func()) {
	var at func(k int)
	at = func(k int) {
		if k >= len(s) {
			visit()
			return
		}
		for i := k; i < len(s); i++ {
			s[k], s[i] = s[i], s[k]
			at(k + 1)
			s[k], s[i] = s[i], s[k]
		}
	}
	at(0)
}

func (x *candidate) read(i int, visit func()) {
	if i == len(x.events) {
		visit()
		return
	}
	if x.events[i].kind != "load" {
		x.read(i+1, visit)
		return
	}
	for _, s := range append([]int{-1}, x.order[x.events[i].at]...) {
		x.from[i] = s
		x.read(i+1, visit)
	}
}

func (x *candidate) result() string {
	var loads []int
	var last [accessWords]int
	for i, e := range x.events {
		if e.kind == "load" {
			v := 0
			if x.from[i] >= 0 {
				v = x.events[x.from[i]].value
			}
			loads = append(loads, v)
		}
	}
	for w, stores := range x.order {
		if len(stores) > 0 {
			last[w] = x.events[stores[len(stores)-1]].value
		}
	}
	return fmt.Sprint(loads, last[0], last[1])
}

// communicates reports whether a comes before b by rf, co or fr.
func (x *candidate) communicates(a, b int) bool {
	ea, eb := x.events[a], x.events[b]
	if a == b || ea.value == 0 && eb.value == 0 || ea.at != eb.at {
		return false // one of the two must be a store
	}
	rank := func(store int) int { return slices.Index(x.order[ea.at], store) } // -1: initial
	switch {
	case ea.kind == "store" && eb.kind == "load":
		return x.from[b] == a
	case ea.kind == "store" && eb.kind == "store":
		return rank(a) < rank(b)
	case ea.kind == "load" && eb.kind == "store":
		return rank(x.from[a]) < rank(b)
	}
	return false
}

// atomic reports whether no other store comes between the load and the store of each exchange.
func (x *candidate) atomic() bool {
	for i, e := range x.events {
		if stores := x.order[e.at]; e.exchange && e.kind == "store" && slices.Index(stores, i) != slices.Index(stores, x.from[i-1])+1 {
			return false
		}
	}
	return true
}

func (x *candidate) before(a, b int) bool {
	return x.events[a].thread == x.events[b].thread && a < b
}

func access(e event) bool { return e.kind == "load" || e.kind == "store" }

func (x *candidate) coherence(a, b int) bool {
	ea, eb := x.events[a], x.events[b]
	return x.communicates(a, b) || x.before(a, b) && access(ea) && access(eb) && ea.at == eb.at
}

// orderedBefore is the Arm manual's relation "ordered before": it joins observations of other threads with each
// thread's own order.
func (x *candidate) orderedBefore(a, b int) bool {
	ea, eb := x.events[a], x.events[b]
	if !access(ea) || !access(eb) {
		return false
	}
	if ea.thread != eb.thread {
		return x.communicates(a, b)
	}
	if !x.before(a, b) {
		return false
	}
	load, store := ea.kind == "load", eb.kind == "store"
	switch {
	case store && ea.at == eb.at, // local write successor
		load && ea.order != "",                 // acquire
		eb.order == "rel",                      // release
		ea.order == "rel" && eb.order == "acq", // release, then strong acquire
		ea.exchange && !load && eb.order != "" && x.communicates(a, b), // a load-acquire of the store of an exchange
		load && eb.dep != "" && eb.dep != "ctrl" && eb.on == ea.place:  // address, data
		return true
	}
	for m := a + 1; m <= b; m++ {
		em := x.events[m]
		depends := load && em.dep != "" && em.on == ea.place
		switch {
		case em.kind == "dmb.sy",
			em.kind == "dmb.ld" && load,
			em.kind == "dmb.st" && !load && store,
			depends && em.dep != "data" && store, // a branch or an address, then a store
			depends && em.dep != "ctrl" && em.kind == "store" && eb.kind == "load" && x.from[b] == m: // forwarded
			return true
		}
	}
	return false
}

func (x *candidate) cyclic(related func(a, b int) bool) bool {
	state := make([]int, len(x.events)) // 1: on the path, 2: done
	var visit func(a int) bool
	visit = func(a int) bool {
		state[a] = 1
		for b := range x.events {
			if state[b] != 2 && related(a, b) && (state[b] == 1 || visit(b)) {
				return true
			}
		}
		state[a] = 2
		return false
	}
	for a := range x.events {
		if state[a] == 0 && visit(a) {
			return true
		}
	}
	return false
}
