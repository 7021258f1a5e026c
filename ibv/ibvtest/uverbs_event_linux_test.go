package ibvtest_test

import (
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/flowtally/flowtally/ibv/ibvtest"
)

// TestUverbsEvents destroys queue pairs with events that were read and that were not, and compares the number of
// reported events with the kernel's ib_uverbs_release_uevent: it counts the first only, and drops the others.
func TestUverbsEvents(t *testing.T) {
	c := newUVClient(t, ibvtest.Env{}, 0)
	c.context()
	pd := c.pd()
	memory, err := strconv.ParseUint(c.line("memory"), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	call := func(object, method int, attrs ...string) []uvResult {
		t.Helper()
		err, r := c.call(object, method, uvMLX5, "ok", attrs...)
		if err != 0 {
			t.Fatalf("method %d of object %d: %v", method, object, err)
		}
		return r
	}
	low, high := memory&0xffffffff, memory>>32
	cq := call(objCQ, 0, handle(0, 0), value(1, 4, 1), value(2, 8, 4711), value(4, 4, 0), output(6, 4),
		input(uhwIn, hex32(low, high, low+0x8000, high, 64, 0, 0, 0)), output(uhwOut, 8))[0].value
	async := call(objAsync, 0, handle(0, 0))[0].value
	const sqDrained = 5
	modify := func(qp, mask uint64, state int) {
		t.Helper()
		in := strings.Repeat("00", 64) + hex32(qp, mask, 0, 0, 0, 0, 0, 0) + fmt.Sprintf("%02x00000001000000", state) + "01" + strings.Repeat("00", 7)
		if err, _ := c.write(uvMLX5, 26, in, 0); err != 0 {
			t.Fatalf("MODIFY_QP to state %d: %v", state, err)
		}
	}
	// drained makes a queue pair of type UD that has reported an event.
	drained := func(user uint64) (qp uint64) {
		t.Helper()
		qp = call(objQP, 0, handle(0, 0), handle(2, pd), handle(4, cq), handle(5, cq), value(7, 8, user), input(8, hex32(1, 1, 1, 1, 0)),
			value(9, 8, 4), output(13, 20), output(14, 4),
			input(uhwIn, hex32(low+0x1000, high, low+0x8100, high, 4, 4, 4, 1<<3, 0, 0, 0, 0, 0, 0)), output(uhwOut, 32))[0].value
		modify(qp, 0x71, 1)
		modify(qp, 1, 2)
		modify(qp, 1<<16|1, 3)
		modify(qp, 5, 4)
		return qp
	}
	destroy := func(qp uint64) uint64 {
		t.Helper()
		return le32(call(objQP, 1, handle(0, qp), output(1, 4))[1].out)
	}
	event := func(want string) {
		t.Helper()
		if got := c.line("event %d", async); got != want {
			t.Errorf("event %q, want %q", got, want)
		}
	}
	read, unread, last := drained(100), drained(200), drained(300)
	event(fmt.Sprint("100 ", sqDrained))
	if n := destroy(read); n != 1 {
		t.Errorf("%d events of a queue pair whose event was read", n)
	}
	if n := destroy(unread); n != 0 {
		t.Errorf("%d events of a queue pair whose event was not read", n)
	}
	event(fmt.Sprint("300 ", sqDrained)) // the event of the destroyed queue pair is gone
	event("none")
	if n := destroy(last); n != 1 {
		t.Errorf("%d events of the last queue pair", n)
	}
	if err, _ := c.call(objQP, 1, uvMLX5, "ok", handle(0, last), output(1, 4)); err != syscall.ENOENT {
		t.Errorf("destroying a destroyed queue pair: %v", err)
	}
}
