package memorder

import (
	"fmt"
	"slices"
	"strings"
)

// A program is threads over words of memory.
type program struct {
	names   []string // names of the words
	initial []int
	threads []body
	// bad returns why an execution is wrong, or "". It may be nil: then threads report errors themselves (Fail).
	// results contains the values kept by each thread (Out), and last returns the final value of a word.
	bad func(results [][]int, last func(word) int) string
}

type body struct {
	run    func(*thread)
	stores bool
}

// word declares a word with its initial value.
func (p *program) word(name string, initial int) word {
	p.names, p.initial = append(p.names, name), append(p.initial, initial)
	return word(len(p.names) - 1)
}

// writer adds a thread with stores.
func (p *program) writer(run func(*thread)) { p.threads = append(p.threads, body{run, true}) }

// reader adds a thread without stores.
func (p *program) reader(run func(*thread)) { p.threads = append(p.threads, body{run, false}) }

// choices walks a tree of decisions depth first. It runs one function again and again, each time with other decisions.
type choices struct {
	path    []choice
	at      int
	changed int // index of the first decision that differs from the previous run
}

type choice struct{ taken, of int }

func (c *choices) one(of int) int {
	if of == 1 {
		return 0
	}
	if c.at == len(c.path) {
		c.path = append(c.path, choice{0, of})
	}
	c.at++
	return c.path[c.at-1].taken
}

// repeats reports whether this run has made no other choice than the previous run so far.
func (c *choices) repeats() bool { return c.at <= c.changed }

// next moves to the next leaf. It returns false after the last one.
func (c *choices) next() bool {
	for n := len(c.path); n > 0; n-- {
		if last := &c.path[n-1]; last.taken+1 < last.of {
			last.taken++
			c.path, c.at, c.changed = c.path[:n], 0, n-1
			return true
		}
		c.path = c.path[:n-1]
	}
	return false
}

// An exploration is the result of exploring a program.
type exploration struct {
	p       *program
	removed []string

	memories   int // visited prefixes of the list of messages
	states     int // executed instructions
	executions int
	results    map[string]bool
	barriers   map[string]bool // names of the program's barriers
	failure    string          // error of the first wrong execution, at which the exploration ends
}

// explore visits every execution of p without the barriers removed.
//
// First we choose the order of all stores, message by message. Then each thread runs by itself against the whole list.
// Loads of different threads never interleave, which keeps the exploration cheap.
func explore(p *program, removed ...string) *exploration {
	x := &exploration{p: p, removed: removed, results: map[string]bool{}, barriers: map[string]bool{}}
	x.grow(nil)
	return x
}

// run runs one thread with the decisions of choose. kept reports whether it made every store that it had promised, and
// ended whether it reached its end or an error (why).
func (x *exploration) run(id int, memory []message, choose *choices, may bool, seen map[string]bool, trace *[]string) (t *thread, kept, ended bool, why string) {
	n := len(x.p.names)
	t = &thread{
		id: id, memory: slices.Clip(memory), fixed: len(memory), may: may, initial: x.p.initial, names: x.p.names,
		barriers: x.barriers, removed: x.removed, choose: choose, promised: make([]bool, len(memory)),
		coherent: make([]view, n), forward: make([]forwarded, n), seen: seen, trace: trace,
	}
	for i, m := range memory {
		t.promised[i] = m.by == id
	}
	defer func() {
		x.states += t.states
		switch r := recover().(type) {
		case nil:
			kept, ended = !slices.Contains(t.promised, true), true
		case blocked:
			kept = !slices.Contains(t.promised, true)
		case stuck:
		case failed:
			if may {
				panic("a thread that stores failed: it says so by bad: " + r.why)
			}
			kept, ended, why = true, true, r.why
		default:
			panic(r)
		}
	}()
	x.p.threads[id].run(t)
	return t, false, false, ""
}

// each visits every run of one thread against memory, if the run makes all promised stores. It stops at the first error.
func (x *exploration) each(id int, memory []message, may bool, visit func(t *thread, ended bool)) {
	choose, seen := &choices{changed: -1}, map[string]bool{}
	for more := true; more && x.failure == ""; more = choose.next() {
		t, kept, ended, why := x.run(id, memory, choose, may, seen, nil)
		if kept {
			visit(t, ended)
		}
		if why != "" {
			x.fail(id, memory, choose, why)
		}
	}
}

func (x *exploration) fail(id int, memory []message, choose *choices, why string) {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\nmemory:", why)
	for _, m := range memory {
		fmt.Fprintf(&b, " %s=%d", x.p.names[m.at], m.value)
	}
	if choose != nil {
		var trace []string
		choose.at = 0
		x.run(id, memory, choose, false, map[string]bool{}, &trace)
		fmt.Fprintf(&b, "\nthread %d: %s", id, strings.Join(trace, "; "))
	}
	x.failure = b.String()
}

// grow explores the memories that begin with memory.
func (x *exploration) grow(memory []message) {
	x.memories++
	var next []message
	whole := true
	results := make([][][]int, len(x.p.threads)) // distinct results of each thread
	runs := make([]int, len(x.p.threads))
	keep := func(id int, t *thread) {
		runs[id]++
		if !slices.ContainsFunc(results[id], func(r []int) bool { return slices.Equal(r, t.out) }) {
			results[id] = append(results[id], t.out)
		}
	}
	for id, b := range x.p.threads {
		if !b.stores {
			continue
		}
		x.each(id, memory, true, func(t *thread, ended bool) {
			for _, m := range t.candidates {
				if !slices.Contains(next, m) {
					next = append(next, m)
				}
			}
			if ended && len(t.memory) == len(memory) {
				keep(id, t)
			}
		})
		whole = whole && runs[id] > 0
	}
	if whole {
		for id, b := range x.p.threads {
			if !b.stores {
				x.each(id, memory, false, func(t *thread, _ bool) { keep(id, t) })
			}
		}
		x.finish(memory, results, runs)
	}
	for _, m := range next {
		if x.failure == "" {
			x.grow(append(slices.Clip(memory), m))
		}
	}
}

// finish checks the executions with one memory: every combination of the threads' runs.
func (x *exploration) finish(memory []message, results [][][]int, runs []int) {
	n := 1
	for _, r := range runs {
		n *= r
	}
	x.executions += n
	last := func(at word) int {
		for _, m := range slices.Backward(memory) {
			if m.at == at {
				return m.value
			}
		}
		return x.p.initial[at]
	}
	combination := make([][]int, len(results))
	var combine func(id int)
	combine = func(id int) {
		if id < len(results) {
			for _, r := range results[id] {
				combination[id] = r
				combine(id + 1)
			}
			return
		}
		x.results[fmt.Sprint(combination)] = true
		if x.p.bad == nil || x.failure != "" {
			return
		}
		if why := x.p.bad(combination, last); why != "" {
			x.fail(0, memory, nil, fmt.Sprint(why, " ", combination))
		}
	}
	combine(0)
}

func (x *exploration) String() string {
	return fmt.Sprintf("%d memories, %d states, %d executions", x.memories, x.states, x.executions)
}
