package memorder

// history is a ring of size records. Records 1 and 2 exist at first. The writer adds 3 to 5 while a reader follows from
// record 1 on.
func history(size int) *program {
	p := &program{}
	intent, tail := p.word("history_intent", 2), p.word("history_tail", 2)
	position, total := make([]word, size), make([]word, size)
	for n := 3 - size; n <= 2; n++ {
		position[(n-1)%size] = p.word("position"+string(rune('0'+(n-1)%size)), n)
		total[(n-1)%size] = p.word("total"+string(rune('0'+(n-1)%size)), n)
	}
	p.writer(func(t *thread) {
		for n := 3; n <= 5; n++ {
			t.Store(intent, n)
			t.StoreFence("history-fence")
			t.Store(position[(n-1)%size], n)
			t.Store(total[(n-1)%size], n)
			t.Release("history-release", tail, n)
		}
	})
	p.reader(func(t *thread) {
		for c := 2 - size; ; {
			t.Again("next", c)
			last := t.Acquire("tail-acquire", tail)
			if c == last {
				return
			}
			begun := t.Acquire("intent-acquire", intent)
			if last < c || begun < last {
				t.Fail("not a mirror: tail %d and intent %d after record %d", last, begun, c)
			}
			if begun > c+size {
				c = begun - size // the records in between are lost
				continue
			}
			n, v := t.Load(position[c%size]), t.Load(total[c%size])
			t.LoadFence("history-read-fence")
			if t.Load(intent) > c+size {
				continue
			}
			if n != c+1 || v != c+1 {
				t.Fail("record %d says that it is %d and holds %d", c+1, n, v)
			}
			c++
		}
	})
	return p
}

func historyRing() *program  { return history(2) }
func historyOfOne() *program { return history(1) }
