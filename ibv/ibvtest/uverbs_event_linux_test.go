package ibvtest_test

import (
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/flowtally/flowtally/ibv/ibvtest"
	"github.com/flowtally/flowtally/internal/lab"
)

// must makes a call of mlx5 that succeeds.
func (c *uvClient) must(object, method int, attrs ...string) []uvResult {
	c.t.Helper()
	err, r := c.call(object, method, uvMLX5, "ok", attrs...)
	if err != 0 {
		c.t.Fatalf("method %d of object %d: %v", method, object, err)
	}
	return r
}

// memory returns the two words of the address of the client's queues.
func (c *uvClient) memory() (low, high uint64) {
	c.t.Helper()
	at, err := strconv.ParseUint(c.Say("memory"), 10, 64)
	if err != nil {
		c.t.Fatal(err)
	}
	return at & 0xffffffff, at >> 32
}

func (c *uvClient) modify(qp, mask uint64, state int) {
	c.t.Helper()
	in := strings.Repeat("00", 64) + hex32(qp, mask, 0, 0, 0, 0, 0, 0) + fmt.Sprintf("%02x00000001000000", state) + "01" + strings.Repeat("00", 7)
	if err, _ := c.write(uvMLX5, 26, in, 0); err != 0 {
		c.t.Fatalf("MODIFY_QP to state %d: %v", state, err)
	}
}

// Some events were read before the queue pair is destroyed, and some were not. As the kernel's
// ib_uverbs_release_uevent, the model must report only the number of the first, and drop the
// others.
func TestUverbsCountsEventsOfDestroyedQueuePairs(t *testing.T) { overFrontEnds(t, uverbsEvents) }

func uverbsEvents(t *testing.T, front frontEnd) {
	c := newUVClient(t, front, ibvtest.Env{}, 0)
	c.context()
	pd := c.pd()
	low, high := c.memory()
	cq := c.must(objCQ, 0, handle(0, 0), value(1, 4, 1), value(2, 8, 4711), value(4, 4, 0), output(6, 4),
		input(uhwIn, hex32(low, high, low+0x8000, high, 64, 0, 0, 0)), output(uhwOut, 8))[0].value
	async := c.must(objAsync, 0, handle(0, 0))[0].value
	const sqDrained = 5
	// drained makes a queue pair of type UD that has reported an event.
	drained := func(user uint64) (qp uint64) {
		t.Helper()
		qp = c.must(objQP, 0, handle(0, 0), handle(2, pd), handle(4, cq), handle(5, cq), value(7, 8, user), input(8, hex32(1, 1, 1, 1, 0)),
			value(9, 8, 4), output(13, 20), output(14, 4),
			input(uhwIn, hex32(low+0x1000, high, low+0x8100, high, 4, 4, 4, 1<<3, 0, 0, 0, 0, 0, 0)), output(uhwOut, 32))[0].value
		c.modify(qp, 0x71, 1)
		c.modify(qp, 1, 2)
		c.modify(qp, 1<<16|1, 3)
		c.modify(qp, 5, 4)
		return qp
	}
	destroy := func(qp uint64) uint64 {
		t.Helper()
		return le32(c.must(objQP, 1, handle(0, qp), output(1, 4))[1].out)
	}
	event := func(want string) {
		t.Helper()
		if got := c.Say("event %d", async); got != want {
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

// Completion queues report a completion and an overrun each (ib_uverbs_release_ucq).
func TestUverbsCountsEventsOfDestroyedCQs(t *testing.T) { overFrontEnds(t, uverbsCQEvents) }

func uverbsCQEvents(t *testing.T, front frontEnd) {
	c := newUVClient(t, front, ibvtest.Env{}, 0)
	c.context()
	pd := c.pd()
	low, high := c.memory()
	async := c.must(objAsync, 0, handle(0, 0))[0].value
	err, r := c.write(uvMLX5, 17, "0000000000000000", 4)
	if err != 0 {
		t.Fatalf("CREATE_COMP_CHANNEL: %v", err)
	}
	channel := le32(r[1].out)
	var cqs []uint64
	for i := range uint64(3) {
		buffer, record := i*0x2000, 0x8000+i*0x200
		cq := c.must(objCQ, 0, handle(0, 0), value(1, 4, 1), value(2, 8, 100*(i+1)), handle(3, channel), value(4, 4, 0), output(6, 4),
			input(uhwIn, hex32(low+buffer, high, low+record, high, 64, 0, 0, 0)), output(uhwOut, 8))[0].value
		c.Say("poke %d 00000000", record+4) // asks for an event
		qp := c.must(objQP, 0, handle(0, 0), handle(2, pd), handle(4, cq), handle(5, cq), value(7, 8, i), input(8, hex32(1, 1, 1, 1, 0)),
			value(9, 8, 4), output(13, 20), output(14, 4),
			input(uhwIn, hex32(low+buffer+0x1000, high, low+record+0x100, high, 4, 4, 4, 1<<3, 0, 0, 0, 0, 0, 0)), output(uhwOut, 32))[0].value
		c.modify(qp, 0x71, 1)
		c.Say("poke %d 00000004", record+0x100) // four receives, which are flushed into two entries
		c.modify(qp, 1, 6)
		lab.Eventually(t, "the completion queue reports both events", func() bool {
			return c.Say("pending %d", channel) == fmt.Sprint(8*(i+1)) && c.Say("pending %d", async) == fmt.Sprint(16*(i+1))
		})
		c.must(objQP, 1, handle(0, qp), output(1, 4))
		cqs = append(cqs, cq)
	}
	event := func(fd uint64, size int, want string) {
		t.Helper()
		if got := c.Say("event %d %d", fd, size); got != want {
			t.Errorf("event %q, want %q", got, want)
		}
	}
	destroy := func(cq uint64, want string) {
		t.Helper()
		if got := c.must(objCQ, 1, handle(0, cq), output(1, 8))[1].out; got != want {
			t.Errorf("reported events %s, want %s", got, want)
		}
	}
	event(channel, 8, "100")
	event(async, 16, "100 0")
	destroy(cqs[0], hex32(1, 1))
	destroy(cqs[1], hex32(0, 0))
	event(channel, 8, "300") // the events of the destroyed completion queue are gone
	event(async, 16, "300 0")
	destroy(cqs[2], hex32(1, 1))
	event(channel, 8, "none")
	event(async, 16, "none")
}

// Some calls make a descriptor. If such a call fails, it must close it, as the kernel's
// uverbs_finalize_object does. When the client closes a descriptor for messages, the model must
// free it at the first chance.
func TestUverbsFailedCallsLeaveNoDescriptor(t *testing.T) { overFrontEnds(t, uverbsDescriptors) }

func uverbsDescriptors(t *testing.T, front frontEnd) {
	const objAsyncCmd, allocAsyncCmd, createCompChannel, devx = 1<<12 | 4, 1 << 12, 17, "01000000"
	c := newUVClient(t, front, ibvtest.Env{}, 0)
	c.must(objDevice, getContext, input(uhwIn, "1000000004000000"+devx+strings.Repeat("0", 40)), output(uhwOut, 72))
	round := func() {
		t.Helper()
		unknown := "77,1,0,8,v,0"
		for _, call := range []struct {
			makes          string
			object, method int
			attrs          []string
			want           syscall.Errno
		}{
			{"an asynchronous descriptor", objAsync, 0, []string{handle(0, 0), unknown}, syscall.EPROTONOSUPPORT},
			{"results of commands", objAsyncCmd, allocAsyncCmd, []string{handle(1<<12, 0), unknown}, syscall.EPROTONOSUPPORT},
			{"a completion channel", objDevice, invokeWrite, []string{value(2, 8, createCompChannel), value(0, 8, 0), "1,1,0,4,e,"}, syscall.EFAULT},
		} {
			if err, _ := c.call(call.object, call.method, uvMLX5, "ok", call.attrs...); err != call.want {
				t.Errorf("making %s: %v, want %v", call.makes, err, call.want)
			}
		}
		fd := c.must(objAsyncCmd, allocAsyncCmd, handle(1<<12, 0))[0].value
		if got := c.Say("close %d", fd); got != "0" {
			t.Errorf("closing descriptor %d: %s", fd, got)
		}
	}
	round()
	want := c.Say("descriptors")
	for range 10 {
		round()
	}
	if got := c.Say("descriptors"); got != want {
		t.Errorf("%s descriptors, want %s", got, want)
	}
}
