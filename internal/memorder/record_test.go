package memorder

// halves is the modulus of a record's cycle. A record contains only the low part of the cycle.
const halves = 4

// record is a writer publishing a record in cycles 4 to 6. Its reader labels the record with the largest cycle up to
// cycle_begun with the same low part. With early it loads cycle_begun before the record, which is wrong: an earlier
// specification did not tell the order.
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
