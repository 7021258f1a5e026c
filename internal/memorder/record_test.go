package memorder

// halves is the modulus of a record's cycle: only the low part of it is kept.
const halves = 4

// record is a writer that publishes a record in cycles 4 to 6. Its reader labels the record with the
// largest cycle up to cycle_begun whose low part is the record's. early loads cycle_begun before the
// record, which is the fault of a specification that named no order.
func record(early bool) *program {
	p := &program{}
	b := p.block(3, "packets", "low")
	begun := p.word("cycle_begun", 3)
	p.writer(func(t *thread) {
		for n := 2; n <= 4; n++ {
			cycle := n + 2
			t.Release("begun-release", begun, cycle)
			b.publish(t, n, cycle, cycle%halves)
		}
	})
	p.reader(func(t *thread) {
		for {
			t.Again("read")
			at := 0
			if early {
				at = t.Load(begun)
			}
			fields, _, ok := b.plain(t)
			if !ok {
				continue
			}
			if !early {
				at = t.Load(begun)
			}
			cycle := at - ((at-fields[1])%halves+halves)%halves
			if cycle != fields[0] {
				t.Fail("the value is of cycle %d, and its label of cycle %d", fields[0], cycle)
			}
			return
		}
	})
	return p
}

func recordOrdered() *program { return record(false) }
func recordEarly() *program   { return record(true) }
