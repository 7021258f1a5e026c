package ibv

import (
	"syscall"
	"testing"
)

// oneAddress is a library whose allocator reuses an address as soon as it is free, and records the
// moment.
type oneAddress struct {
	verbs
	freed func()
}

func (l *oneAddress) createCQ(handle, CQOptions) (handle, int, syscall.Errno) { return 1, 1, 0 }
func (l *oneAddress) createQP(handle, handle, handle, *QPOptions) (handle, uint32, syscall.Errno) {
	return 2, 0, 0
}
func (l *oneAddress) destroyCQ(handle) syscall.Errno { l.freed(); return 0 }
func (l *oneAddress) destroyQP(handle) syscall.Errno { l.freed(); return 0 }

// The library may reuse the address of an object while the Go side is still closing it.
func TestEventOfAReusedAddressNamesTheNewObject(t *testing.T) {
	lib := &oneAddress{freed: func() {}}
	c := &Context{lib: &Library{v: lib}, v: lib, qpByHandle: make(map[handle]*QP), cqByHandle: make(map[handle]*CQ)}
	pd := &PD{ctx: c}
	cq := func() *CQ {
		q, err := c.CreateCQ(CQOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return q
	}
	shared := cq()
	qp := func() *QP {
		q, err := pd.CreateQP(QPOptions{Type: QPTRawPacket, SendCQ: shared, RecvCQ: shared})
		if err != nil {
			t.Fatal(err)
		}
		return q
	}
	closes := func(o interface{ Close() error }) {
		t.Helper()
		if err := o.Close(); err != nil {
			t.Fatal(err)
		}
	}

	first := qp()
	var second *QP
	lib.freed = func() { second = qp() }
	closes(first)
	if got := c.event(event{typ: EventQPFatal, element: 2}).QP; got != second {
		t.Errorf("the event is about %p, want the second queue pair, %p", got, second)
	}
	lib.freed = func() {}
	closes(second)
	if got := c.event(event{typ: EventQPFatal, element: 2}).QP; got != nil {
		t.Errorf("the event is about %p, which is closed", got)
	}

	var next *CQ
	lib.freed = func() { next = cq() }
	closes(shared)
	if got := c.event(event{typ: EventCQErr, element: 1}).CQ; got != next {
		t.Errorf("the event is about %p, want the next completion queue, %p", got, next)
	}
}
