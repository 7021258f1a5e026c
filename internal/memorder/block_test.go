package memorder

import "fmt"

// block is the unit of publishing: a block of counters, a record, or the changing part of an entry. It has one sequence
// word and two copies of its fields. The low bit of the sequence word tells the current copy.
type block struct {
	seq    word
	copies [2][]word
	intent word // 0 if the block has none: a record
}

// block declares a block. Copy 1 is current, and each of its fields has the given value.
func (p *program) block(value int, fields ...string) *block {
	b := &block{}
	for i := range b.copies {
		for _, name := range fields {
			b.copies[i] = append(b.copies[i], p.word(fmt.Sprint(name, i), i*value))
		}
	}
	b.seq = p.word("seq", 1)
	return b
}

// publish is R20 of docs/mirror-format.md: it fills the other copy, and makes it current.
func (b *block) publish(t *thread, seq int, fields ...int) {
	if b.intent != 0 {
		t.Store(b.intent, seq)
	}
	t.StoreFence("publish-fence")
	for i, f := range fields {
		t.Store(b.copies[seq&1][i], f)
	}
	t.Release("publish-release", b.seq, seq)
}

// load loads the fields of one copy.
func (b *block) load(t *thread, parity int) []int {
	var fields []int
	for _, f := range b.copies[parity&1] {
		fields = append(fields, t.Load(f))
	}
	return fields
}

// plain tries the plain form once. It returns the fields, the sequence word, and whether they belong together.
func (b *block) plain(t *thread) (fields []int, s int, ok bool) {
	s = t.Acquire("read-acquire", b.seq)
	fields = b.load(t, s)
	t.LoadFence("read-fence")
	return fields, s, t.Load(b.seq) == s
}

// cycles is a writer. It publishes the block in each of three cycles, with the number of the cycle in each field.
func (b *block) cycles(p *program) (cycleDone word) {
	cycleDone = p.word("cycle_done", 1)
	p.writer(func(t *thread) {
		for n := 2; n <= 4; n++ {
			b.publish(t, n, n, n)
			t.Release("cycle-release", cycleDone, n)
		}
	})
	return cycleDone
}

// whole fails unless all fields come from one cycle, and this cycle is k or later.
func whole(t *thread, fields []int, k int) {
	if fields[0] != fields[1] {
		t.Fail("torn: one field is of cycle %d, the other of cycle %d", fields[0], fields[1])
	}
	if fields[0] < k {
		t.Fail("the value is of cycle %d, and cycle_done was %d before", fields[0], k)
	}
}

// blockPlain reads one counter in the plain form (R7).
func blockPlain() *program {
	p := &program{}
	b := p.block(1, "packets", "bytes")
	cycleDone := b.cycles(p)
	p.reader(func(t *thread) {
		k := t.Acquire("cycle-acquire", cycleDone)
		for {
			t.Again("read", k)
			if fields, _, ok := b.plain(t); ok {
				whole(t, fields, k)
				return
			}
		}
	})
	return p
}

// blockQuick reads one counter in the quick form (R8), after a plain read.
func blockQuick() *program {
	p := &program{}
	b := p.block(1, "packets", "bytes")
	cycleDone := b.cycles(p)
	p.reader(func(t *thread) {
		last, k := 0, 0
		for read := 1; ; {
			t.Again("read", read, last, k)
			fields, s, ok := b.plain(t)
			if !ok {
				continue
			}
			whole(t, fields, k)
			if last = s; read == 2 {
				return
			}
			read, k = 2, t.Acquire("cycle-acquire", cycleDone)
			if t.Load(b.seq) == last {
				whole(t, fields, k)
				return
			}
		}
	})
	return p
}

// blockSnapshot is R10 and R11: a reader takes the copy of cycle k if it still exists. Between two cycles it takes the
// current copy without checking the cycle first, and checks behind the load fence.
func blockSnapshot() *program {
	p := &program{}
	b := p.block(1, "packets", "cycle")
	b.intent = p.word("intent", 1)
	begun, cycleDone := p.word("cycle_begun", 1), p.word("cycle_done", 1)
	p.writer(func(t *thread) {
		for n := 2; n <= 3; n++ {
			t.Release("begun-release", begun, n)
			b.publish(t, n, n, n)
			t.Release("cycle-release", cycleDone, n)
		}
	})
	p.reader(func(t *thread) {
		k := t.Acquire("cycle-acquire", cycleDone)
		const cycle = 1 // the index of the field with the cycle
		for between := t.Load(begun) <= k; ; between = false {
			t.Again("read", k, bit(between))
			s := t.Acquire("read-acquire", b.seq)
			if !between && t.Load(b.copies[s&1][cycle]) > k && t.Load(b.copies[^s&1][cycle]) == k {
				fields := b.load(t, s+1)
				t.LoadFence("read-fence")
				if t.Load(b.intent) == s {
					if whole(t, fields, k); fields[cycle] != k {
						t.Fail("the other copy is of cycle %d, not %d", fields[cycle], k)
					}
					return
				}
			}
			fields := b.load(t, s)
			t.LoadFence("read-fence")
			if t.Load(b.seq) == s && !(between && fields[cycle] > k) {
				whole(t, fields, k)
				return
			}
		}
	})
	return p
}

// blockGivenUp is R27. The writer advances every sequence word by two: the current copy stays the same, and the quick
// form fails. A reader that sees the word change must also see the mark, and return no value.
func blockGivenUp() *program {
	p := &program{}
	b := p.block(1, "packets", "bytes")
	replaced := p.word("replaced", 0)
	const moved = 4
	p.writer(func(t *thread) {
		b.publish(t, 2, 2, 2)
		t.Store(replaced, 1)
		t.Release("give-up-release", b.seq, moved)
	})
	p.reader(func(t *thread) {
		for {
			t.Again("read")
			s := t.Acquire("read-acquire", b.seq)
			if t.Load(replaced) != 0 {
				return
			}
			fields := b.load(t, s)
			t.LoadFence("read-fence")
			if t.Load(b.seq) != s {
				continue
			}
			if whole(t, fields, 0); s == moved {
				t.Fail("a value of a file that was given up")
			}
			return
		}
	})
	return p
}

func bit(b bool) int {
	if b {
		return 1
	}
	return 0
}
