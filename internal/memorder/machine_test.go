package memorder

import (
	"fmt"
	"slices"
)

// A word is the number of a 64-bit word of memory.
type word int

// A view is a position in the list of messages: a thread with this view has seen all messages up to it. View 0 is the
// memory before the first message.
type view int

// A message is one store in memory. Memory is a single list of messages for all words, and all threads see the same
// list, because ARMv8 is multi-copy atomic. Message i of the list is at view i+1.
type message struct {
	at    word
	value int
	by    int
}

// A thread runs one function of a program against a memory. Its views tell how much of memory its next instructions must
// respect.
type thread struct {
	id       int
	memory   []message // given messages, then those appended by the thread
	fixed    int       // number of given messages
	may      bool      // whether it may append; otherwise each of its stores must be given
	promised []bool    // given messages of this thread, until their store has run
	initial  []int     // value of each word before the first message
	removed  []string  // names of the barriers to ignore in this run
	barriers map[string]bool
	choose   *choices

	coherent          []view // newest seen message of each word
	forward           []forwarded
	oldLoad, oldStore view // of all loads, and of all stores, so far
	newLoad, newStore view // to be respected by the next load, and by the next store
	control, release  view // of addresses and branches; of store-releases
	readFrom          view // of the message read by the last load
	candidates        []message
	names             []string // names of the words
	out               []int
	seen              map[string]bool
	trace             *[]string // nil: do not record a trace
	states            int
}

// forwarded is a thread's last store to a word. The thread's own loads may take the value from there before the store is
// in memory. They then depend only on what the store's address and data depended on. A load-acquire must not take the
// store of an exchange this early.
type forwarded struct {
	at, known view
	exchanged bool
}

// stuck ends a run that turns out to be impossible.
type stuck struct{}

// blocked ends a run that waits for another thread. Its stores count.
type blocked struct{}

// failed ends a run that breaks the protocol.
type failed struct{ why string }

func (t *thread) note(format string, args ...any) {
	if t.trace != nil {
		*t.trace = append(*t.trace, fmt.Sprintf(format, args...))
	}
}

// is reports whether the barrier has an effect in this run.
func (t *thread) is(name string) bool {
	if name == "" {
		return true
	}
	t.barriers[name] = true
	return !slices.Contains(t.removed, name)
}

func (t *thread) valueAt(at word, v view) int {
	if v == 0 {
		return t.initial[at]
	}
	return t.memory[v-1].value
}

// read returns a value of a word, and its view. The thread may still see several messages of the word, so read chooses
// one of them.
func (t *thread) read(at word, before view) (int, view) {
	before = max(before, t.coherent[at])
	oldest := view(0)
	for v := before; v > 0; v-- {
		if t.memory[v-1].at == at {
			oldest = v
			break
		}
	}
	from := []view{oldest}
	for v := before + 1; int(v) <= len(t.memory); v++ {
		// A thread cannot read its own store before running it.
		if t.memory[v-1].at == at && !t.promised[v-1] {
			from = append(from, v)
		}
	}
	v := from[t.choose.one(len(from))]
	return t.valueAt(at, v), v
}

func (t *thread) load(at word, known view, acquire, strong bool) (int, view) {
	t.states++
	before := max(known, t.newLoad)
	if strong {
		before = max(before, t.release)
	}
	value, v := t.read(at, before)
	t.readFrom = v
	if f := t.forward[at]; f.at == v && v != 0 && !(f.exchanged && acquire) {
		v = f.known
	}
	after := max(before, v)
	t.coherent[at] = max(t.coherent[at], after)
	t.oldLoad = max(t.oldLoad, after)
	t.control = max(t.control, known)
	if acquire {
		t.newLoad, t.newStore = max(t.newLoad, after), max(t.newStore, after)
	}
	if t.trace != nil {
		t.note("load %s = %d", t.names[at], value)
	}
	return value, after
}

func (t *thread) store(at word, value int, known view, release bool) {
	t.states++
	before := max(known, t.newStore, t.control)
	if release {
		before = max(before, t.oldLoad, t.oldStore)
	}
	before = max(before, t.coherent[at])
	v := t.fulfil(message{at, value, t.id}, before)
	t.coherent[at] = v
	t.oldStore = max(t.oldStore, v)
	if release {
		t.release = max(t.release, v)
	}
	t.forward[at] = forwarded{at: v, known: known}
	if t.trace != nil {
		t.note("store %s = %d", t.names[at], value)
	}
}

// fulfil finds the message of a store: the first promise with this content or, if the thread may append, a new message.
// A message that could be appended right behind the given ones is a candidate for the next promise.
func (t *thread) fulfil(m message, before view) view {
	for v := before + 1; int(v) <= t.fixed; v++ {
		if t.promised[v-1] && t.memory[v-1] == m {
			t.promised[v-1] = false
			return v
		}
	}
	if !t.may {
		panic(stuck{})
	}
	if int(before) <= t.fixed {
		t.candidates = append(t.candidates, m)
	}
	t.memory = append(t.memory, m)
	t.promised = append(t.promised, false)
	return view(len(t.memory))
}

// The instructions of the protocol follow. A run can remove a barrier by its name. Barriers without a name are never
// removed.

// Load is a relaxed load.
func (t *thread) Load(at word) int {
	v, _ := t.load(at, 0, false, false)
	return v
}

// Acquire is a load-acquire as weak as LDAPR: it may overtake an earlier store-release of another word.
func (t *thread) Acquire(name string, at word) int {
	v, _ := t.load(at, 0, t.is(name), false)
	return v
}

// Store is a relaxed store.
func (t *thread) Store(at word, value int) { t.store(at, value, 0, false) }

// Release is a store-release (STLR).
func (t *thread) Release(name string, at word, value int) { t.store(at, value, 0, t.is(name)) }

// LoadFence orders the loads before it before every load and store after it (DMB ISHLD).
func (t *thread) LoadFence(name string) {
	if t.is(name) {
		t.newLoad, t.newStore = max(t.newLoad, t.oldLoad), max(t.newStore, t.oldLoad)
	}
}

// StoreFence orders the stores before it before the stores after it (DMB ISHST).
func (t *thread) StoreFence(name string) {
	if t.is(name) {
		t.newStore = max(t.newStore, t.oldStore)
	}
}

// FullFence orders every load and store before it before every load and store after it (DMB ISH).
func (t *thread) FullFence(name string) {
	if t.is(name) {
		all := max(t.oldLoad, t.oldStore)
		t.newLoad, t.newStore = max(t.newLoad, all), max(t.newStore, all)
	}
}

// Swap atomically replaces the value old by value, with acquire and release order. It waits until the word is old. If
// this never happens, the run is blocked.
func (t *thread) Swap(at word, old, value int) {
	t.exchange(at, value, func(v int) bool { return v == old })
}

func (t *thread) exchange(at word, value int, accepts func(old int) bool) (old int) {
	old, _ = t.load(at, 0, true, false)
	if !accepts(old) {
		panic(blocked{})
	}
	from, known := t.readFrom, len(t.candidates)
	t.store(at, value, 0, true)
	t.forward[at].exchanged = true
	for _, m := range t.memory[from : t.coherent[at]-1] {
		if m.at == at && m.by != t.id {
			t.candidates = t.candidates[:known]
			panic(blocked{})
		}
	}
	return old
}

// Await waits until the word has reached value.
func (t *thread) Await(at word, value int) {
	if v, _ := t.load(at, 0, true, false); v < value {
		panic(blocked{})
	}
}

// Only litmus tests use the following instructions: a strong acquire (LDAR), and dependencies. The protocol must not rely
// on dependencies, because a compiler may replace a computed address by a branch.

// AcquireStrong is LDAR: it cannot overtake an earlier store-release.
func (t *thread) AcquireStrong(at word) int {
	v, _ := t.load(at, 0, true, true)
	return v
}

// LoadKnown also returns the view of the value. Pass it to an instruction that depends on the value.
func (t *thread) LoadKnown(at word, known view) (int, view) { return t.load(at, known, false, false) }

// StoreKnown is a store with an address or value that depends on known.
func (t *thread) StoreKnown(at word, value int, known view) {
	t.store(at, value, known, false)
}

// Branch gives later instructions a control dependency on known.
func (t *thread) Branch(known view) { t.control = max(t.control, known) }

// Fail ends the run, because the protocol is broken.
func (t *thread) Fail(format string, args ...any) { panic(failed{fmt.Sprintf(format, args...)}) }

// Out stores a result for the program's final condition.
func (t *thread) Out(value int) { t.out = append(t.out, value) }

// Again marks the start of another try in a loop, which is named by place. The rest of the run must depend only on key
// and on the messages seen by the thread. So we explore each such state once, and an unbounded loop ends. The thread
// must not have stores.
func (t *thread) Again(place string, key ...int) {
	if t.choose.repeats() {
		return
	}
	state := fmt.Sprint(place, key, t.coherent, t.oldLoad, t.newLoad)
	if t.seen[state] {
		panic(stuck{})
	}
	t.seen[state] = true
}
