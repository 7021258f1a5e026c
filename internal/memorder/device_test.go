package memorder

// modulus is the number of values of a device's word, which then wraps to 0.
const modulus = 4

// deviceWords is a device counting to 5, a writer advancing seen, and a reader. To know the right total, we store the
// total itself in a word of the model, and let readers use only the total modulo modulus. The device never counts
// further beyond seen than a word can tell. Real devices cannot either, because the writer looks often enough.
func deviceWords() *program {
	p := &program{}
	device, seen := p.word("word", 0), p.word("seen", 0)
	above := func(from, word int) int { return from + (word-from%modulus+modulus)%modulus }
	p.writer(func(t *thread) {
		for total := 1; total <= 5; total++ {
			if total >= modulus {
				t.Await(seen, total-modulus+1)
			}
			t.Store(device, total)
		}
	})
	p.writer(func(t *thread) {
		total, known := t.LoadKnown(device, 0)
		// The new value of seen depends on the word.
		t.store(seen, above(0, total%modulus), known, t.is("seen-release"))
	})
	p.reader(func(t *thread) {
		for {
			t.Again("read")
			from := t.Acquire("seen-acquire", seen)
			total := t.Acquire("word-acquire", device)
			if t.Load(seen) != from {
				continue
			}
			if got := above(from, total%modulus); got != total {
				t.Fail("the device had counted %d, and the reader returns %d", total, got)
			}
			return
		}
	})
	return p
}

// deviceSlot is a slot passing from one counter to another. A reader must never combine the shift of one counter with the
// word of the other.
func deviceSlot() *program {
	p := &program{}
	seq, shift, device := p.word("seq", 1), p.word("shift", 1), p.word("word", 1)
	p.writer(func(t *thread) {
		t.Store(seq, 2)
		t.StoreFence("withdraw-fence")
		t.Store(shift, 3)
		t.Store(device, 3) // the device counts for the next counter
		t.Release("slot-given-release", seq, 3)
	})
	p.reader(func(t *thread) {
		s := t.Acquire("slot-given-acquire", seq)
		if s%2 == 0 {
			return
		}
		by, w := t.Load(shift), t.Load(device)
		t.LoadFence("device-fence")
		if t.Load(seq) == s && (by != s || w != s) {
			t.Fail("under seq %d the shift is of %d and the word of %d", s, by, w)
		}
	})
	return p
}
