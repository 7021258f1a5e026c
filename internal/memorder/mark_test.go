package memorder

// marks is a CPU that counts twice, and a poller that reads the counter only if its mark has changed since the last look.
// To lose no update, the poller's value must never be older than the mark it has seen.
func marks() *program {
	p := &program{}
	slot, mark := p.word("slot", 0), p.word("mark", 0)
	p.writer(func(t *thread) {
		for n := 1; n <= 2; n++ {
			t.Store(slot, n)
			t.Release("mark-release", mark, n)
		}
	})
	p.reader(func(t *thread) {
		seen, value := 0, 0
		for range 3 {
			if m := t.Acquire("mark-acquire", mark); m != seen {
				seen, value = m, t.Load(slot)
			}
			if value < seen {
				t.Fail("after update %d the value is of update %d", seen, value)
			}
		}
	})
	return p
}
