package engine

// The queue of a reader is a binary heap: the bank that is due first is queue[0]. Its
// methods are called with the reader's lock held and, unlike container/heap's, box nothing.

func (r *hwReader) push(b *hwBank) {
	r.queue = append(r.queue, b)
	r.up(len(r.queue) - 1)
}

func (r *hwReader) pop() *hwBank {
	b, last := r.queue[0], len(r.queue)-1
	r.queue[0] = r.queue[last]
	r.queue[last] = nil
	r.queue = r.queue[:last]
	r.down(0)
	return b
}

// fix restores the order after queue[i] was replaced.
func (r *hwReader) fix(i int) {
	if i < len(r.queue) {
		r.up(i)
		r.down(i)
	}
}

func (r *hwReader) up(i int) {
	for q := r.queue; i > 0; {
		parent := (i - 1) / 2
		if q[parent].due <= q[i].due {
			return
		}
		q[parent], q[i] = q[i], q[parent]
		i = parent
	}
}

func (r *hwReader) down(i int) {
	for q := r.queue; ; {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(q); child++ {
			if q[child].due < q[least].due {
				least = child
			}
		}
		if least == i {
			return
		}
		q[least], q[i] = q[i], q[least]
		i = least
	}
}
