package memorder

// futex is a futex word and its kernel side: the count of waiters, the lock, and the queue. These programs have one
// waiter, so the queue is 0 if it is empty, and otherwise the bit under which the waiter sleeps. (kernel/futex/waitwake.c
// calls the two fences (A) and (B).)
type futex struct{ word, waiters, lock, queued word }

// anyBit is the bit of a waiter reached by every wake.
const anyBit = 9

func (p *program) futex() *futex {
	return &futex{p.word("wait_word", 0), p.word("waiters", 0), p.word("lock", 0), p.word("queued", 0)}
}

// wait is FUTEX_WAIT: the waiter sleeps if the word has the expected value.
func (f *futex) wait(t *thread, expected, bit int) {
	t.Store(f.waiters, 1)
	t.FullFence("futex-wait-fence")
	t.Swap(f.lock, 0, 1)
	if t.Load(f.word) == expected {
		t.Store(f.queued, bit)
	}
	t.Release("", f.lock, 0)
}

// wake is FUTEX_WAKE of all sleepers except those with one bit.
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

// waiter looks at the value once and sleeps unless it is 2. We do not model the next look, after waking up or without
// sleeping: it would be another run of the same code.
func (f *futex) waiter(p *program, value word) {
	p.writer(func(t *thread) {
		w := t.Acquire("wait-acquire", f.word)
		if t.Load(value) != 2 {
			f.wait(t, w, anyBit)
		}
	})
}

// lost reports a waiter that still sleeps although the value has arrived and all wakes are done.
func (f *futex) lost(last func(word) int) string {
	if last(f.queued) != 0 {
		return "lost wake: the value has come, the writer has woken all, and the waiter sleeps"
	}
	return ""
}

// waitEach is a writer that ends two cycles and wakes after each, whether anybody sleeps or not, and a waiter for the
// value of the second cycle.
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

// waitLate is a writer with cycles in close succession. A cycle then leaves the wake to a timer, and sets the timer unless
// it is set already. Here the previous cycle has set it.
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
			return "" // the timer is set again, and will wake the waiter
		}
		return f.lost(last)
	}
	return p
}

// waitPass is a writer that leaves its sleepers to a pass, which increments the turn and wakes the sleepers of other
// turns. A waiter sleeps under the turn it has seen.
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
