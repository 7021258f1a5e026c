package memorder

// futex is a futex word as futex(2) treats it: its count of waiters, its lock,
// and the one waiter of these programs in its queue: 0 when it is not there,
// else the bit under which it sleeps. (kernel/futex/waitwake.c names the two
// fences (A) and (B).)
type futex struct{ word, waiters, lock, queued word }

// anyBit is the bit of a waiter that every wake reaches.
const anyBit = 9

func (p *program) futex() *futex {
	return &futex{p.word("wait_word", 0), p.word("waiters", 0), p.word("lock", 0), p.word("queued", 0)}
}

// wait is FUTEX_WAIT: the waiter sleeps if the word is expected.
func (f *futex) wait(t *thread, expected, bit int) {
	t.Store(f.waiters, 1)
	t.FullFence("futex-wait-fence")
	t.Swap(f.lock, 0, 1)
	if t.Load(f.word) == expected {
		t.Store(f.queued, bit)
	}
	t.Release("", f.lock, 0)
}

// wake is FUTEX_WAKE of all sleepers but the sleepers with one bit.
func (f *futex) wake(t *thread, except int) {
	t.FullFence("futex-wake-fence")
	if t.Load(f.waiters) == 0 {
		return
	}
	t.Swap(f.lock, 0, 1)
	if bit := t.Load(f.queued); bit != 0 && bit != except {
		t.Store(f.queued, 0)
	}
	t.Release("", f.lock, 0)
}

// waiter looks at the value once and sleeps unless it is 2. One that does not
// sleep, or is woken, starts again, which is another run of the same.
func (f *futex) waiter(p *program, value word) {
	p.writer(func(t *thread) {
		w := t.Acquire("wait-acquire", f.word)
		if t.Load(value) != 2 {
			f.wait(t, w, anyBit)
		}
	})
}

// lost is a waiter that sleeps though the value has come and all wakes were made.
func (f *futex) lost(last func(word) int) string {
	if last(f.queued) != 0 {
		return "lost wake: the value has come, the writer has woken all, and the waiter sleeps"
	}
	return ""
}

// waitEach is a writer that ends two cycles and wakes after each, without
// knowing of any sleeper, and a waiter for the value of the second.
func waitEach() *program {
	p := &program{}
	f, value := p.futex(), p.word("value", 0)
	p.writer(func(t *thread) {
		for n := 1; n <= 2; n++ {
			t.Store(value, n)
			t.Release("wait-release", f.word, n)
			f.wake(t, 0)
		}
	})
	f.waiter(p, value)
	p.bad = func(_ [][]int, last func(word) int) string { return f.lost(last) }
	return p
}

// waitLate is a writer whose cycles follow one another closely: a cycle leaves
// the wake to a timer, and sets the timer unless it is set. Here it is set, for
// the cycle before.
func waitLate() *program {
	p := &program{}
	f, value := p.futex(), p.word("value", 1)
	owing := p.word("owing", 1)
	p.writer(func(t *thread) {
		t.Store(value, 2)
		t.FullFence("owing-fence")
		if t.Load(owing) == 0 {
			t.Store(owing, 1)
		}
	})
	p.writer(func(t *thread) {
		t.Store(owing, 0)
		t.Release("wait-release", f.word, 1)
		f.wake(t, 0)
	})
	f.waiter(p, value)
	p.bad = func(_ [][]int, last func(word) int) string {
		if last(owing) == 1 {
			return "" // the timer is set again, and wakes later
		}
		return f.lost(last)
	}
	return p
}

// waitPass is a writer that leaves its sleepers to a pass, which raises the turn
// and wakes the sleepers of other turns. A waiter sleeps under the turn that it saw.
func waitPass() *program {
	p := &program{}
	f, value, turn := p.futex(), p.word("value", 1), p.word("turn", 1)
	p.writer(func(t *thread) {
		t.Store(value, 2)
		t.Release("wait-release", f.word, 1)
		t.Release("turn-release", turn, 2)
		f.wake(t, 2)
	})
	p.writer(func(t *thread) {
		w := t.Acquire("wait-acquire", f.word)
		bit := t.Acquire("turn-acquire", turn)
		if t.Load(value) != 2 {
			f.wait(t, w, bit)
		}
	})
	p.bad = func(_ [][]int, last func(word) int) string { return f.lost(last) }
	return p
}
