//go:build unix

package ibv

import (
	"context"
	"errors"
	"os"
	"syscall"
	"testing"
	"time"
)

// pipeEvents is an eventFile on a pipe: every byte is an event.
func pipeEvents(t *testing.T) (f *eventFile, send func(byte), get func(*byte) func() (bool, error)) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	fd := int(r.Fd())
	if f, err = newEventFile(fd, "dev0"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.close)
	send = func(b byte) {
		if _, err := w.Write([]byte{b}); err != nil {
			t.Error(err)
		}
	}
	// As ibv_get_async_event does: read the library's own descriptor.
	get = func(into *byte) func() (bool, error) {
		return func() (bool, error) {
			var b [1]byte
			n, err := syscall.Read(fd, b[:])
			if errors.Is(err, syscall.EAGAIN) {
				return false, nil
			}
			*into = b[0]
			return n == 1, err
		}
	}
	return f, send, get
}

func TestWaitReturnsEventsFromBeforeAndDuringIt(t *testing.T) {
	f, send, get := pipeEvents(t)
	var b byte
	send(7) // before the wait
	if err := f.wait(t.Context(), get(&b)); err != nil || b != 7 {
		t.Errorf("an event that was there: %d, %v", b, err)
	}
	time.AfterFunc(20*time.Millisecond, func() { send(8) })
	if err := f.wait(t.Context(), get(&b)); err != nil || b != 8 {
		t.Errorf("an event during the wait: %d, %v", b, err)
	}
}

// An interrupted wait must not consume the event of the next one.
func TestWaitEndsWithItsContextAndWithClose(t *testing.T) {
	f, send, get := pipeEvents(t)
	var b byte
	for range 20 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		if err := f.wait(ctx, get(&b)); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("want the context's end, got %v", err)
		}
		cancel()
		if err := f.wait(ctx, get(&b)); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("with an ended context: %v", err)
		}
		time.AfterFunc(time.Millisecond, func() { send(9) })
		if err := f.wait(t.Context(), get(&b)); err != nil || b != 9 {
			t.Fatalf("the next wait: %d, %v", b, err)
		}
	}
	time.AfterFunc(10*time.Millisecond, f.close)
	if err := f.wait(t.Context(), get(&b)); !errors.Is(err, ErrClosed) {
		t.Errorf("closed during the wait: %v", err)
	}
	if err := f.wait(t.Context(), get(&b)); !errors.Is(err, ErrClosed) {
		t.Errorf("closed before the wait: %v", err)
	}
}

func TestWaitEndsWithItsContextWhileAnotherWaits(t *testing.T) {
	f, send, get := pipeEvents(t)
	waits := make(chan struct{})
	first := make(chan error, 1)
	var b byte
	go func() {
		read := get(&b)
		first <- f.wait(t.Context(), func() (bool, error) {
			done, err := read()
			if !done {
				close(waits)
			}
			return done, err
		})
	}()
	<-waits

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := f.wait(ctx, get(new(byte))); !errors.Is(err, context.Canceled) {
		t.Errorf("the second waiter: %v", err)
	}
	send(5)
	if err := <-first; err != nil || b != 5 {
		t.Errorf("the first waiter: %d, %v", b, err)
	}
}

func TestWaitReturnsTheVerbsError(t *testing.T) {
	f, _, _ := pipeEvents(t)
	if err := f.wait(t.Context(), func() (bool, error) { return false, syscall.EIO }); !errors.Is(err, syscall.EIO) {
		t.Error(err)
	}
}

func TestEventFileRefusesDescriptorsThatCannotBePolled(t *testing.T) {
	regular, err := os.Create(t.TempDir() + "/f")
	if err != nil {
		t.Fatal(err)
	}
	defer regular.Close()
	if f, err := newEventFile(int(regular.Fd()), "dev0"); err == nil {
		f.close()
		t.Error("a regular file was taken for an event descriptor")
	}
	if _, err := newEventFile(-1, "dev0"); !errors.Is(err, syscall.EBADF) {
		t.Errorf("no descriptor: %v", err)
	}
}

// acknowledged is a library with one event, of which it knows when it was acknowledged.
type acknowledged struct {
	verbs
	event event
	acks  func(event)
}

func (l *acknowledged) getEvent(handle) (event, syscall.Errno) { return l.event, 0 }
func (l *acknowledged) ackEvent(e event)                       { l.acks(e) }

// After the acknowledgement the library may free the object, and give its address to another one.
func TestEventObjectIsLookedUpBeforeTheAcknowledgement(t *testing.T) {
	f, send, _ := pipeEvents(t)
	send(1)
	old, next := new(QP), new(QP)
	c := &Context{events: f, qpByHandle: map[handle]*QP{2: old}}
	acks := 0
	lib := &acknowledged{event: event{typ: EventQPFatal, element: 2}, acks: func(e event) {
		acks++
		c.qpByHandle[handle(e.element)] = next
	}}
	c.v = lib
	got, err := c.NextEvent(t.Context())
	if err != nil || got.QP != old || acks != 1 {
		t.Errorf("got %+v, %v after %d acknowledgements; want the queue pair at %p, acknowledged once", got, err, acks, old)
	}
}
