package ibv

import (
	"errors"
	"strings"
	"sync"
	"syscall"
	"testing"
)

func made() (handle, error) { return 1, nil }

func newObject(t *testing.T, kind string, parents ...*object) *object {
	t.Helper()
	o := new(object)
	if err := o.init(kind, "dev0", made, parents...); err != nil {
		t.Fatal(err)
	}
	return o
}

func freed(handle) error { return nil }

func TestCloseOfAHeldObjectNamesTheHolders(t *testing.T) {
	ctx := newObject(t, "context")
	counters := newObject(t, "counters object", ctx)
	f1 := newObject(t, "flow", ctx, counters)
	f2 := newObject(t, "flow", ctx, counters, counters)
	refuse := func(o *object, names ...string) {
		t.Helper()
		err := o.close(func(handle) error { t.Errorf("%s was destroyed", o.kind); return nil })
		if !errors.Is(err, ErrBusy) {
			t.Fatalf("closing the %s: %v, want ErrBusy", o.kind, err)
		}
		for _, n := range names {
			if !strings.Contains(err.Error(), n) {
				t.Errorf("the refusal %q does not name %q", err, n)
			}
		}
		if err := o.use(); err != nil {
			t.Errorf("after a refused Close: %v", err)
		} else {
			o.done()
		}
	}
	refuse(ctx, "1 counters object", "2 flows")
	refuse(counters, "2 flows")
	for _, f := range []*object{f1, f2} {
		if err := f.close(freed); err != nil {
			t.Fatal(err)
		}
	}
	refuse(ctx, "1 counters object")
	for _, o := range []*object{counters, ctx, ctx, f1} { // twice is nil
		if err := o.close(freed); err != nil {
			t.Errorf("closing the %s: %v", o.kind, err)
		}
		if err := o.use(); !errors.Is(err, ErrClosed) {
			t.Errorf("using the closed %s: %v", o.kind, err)
		}
	}
	if err := new(object).init("flow", "dev0", func() (handle, error) { t.Error("created"); return 1, nil }, ctx); !errors.Is(err, ErrClosed) {
		t.Errorf("a child of a closed object: %v", err)
	}
}

func TestFailedCreateHoldsNoParent(t *testing.T) {
	ctx := newObject(t, "context")
	want := errors.New("no")
	if err := new(object).init("flow", "dev0", func() (handle, error) { return 0, want }, ctx); !errors.Is(err, want) {
		t.Error(err)
	}
	if err := ctx.close(freed); err != nil {
		t.Error(err)
	}
}

// EBUSY leaves an object open, and any other errno abandons it. An object kept busy by an abandoned
// child is abandoned with the child.
func TestFailedDestroyAbandonsTheObjectUnlessBusy(t *testing.T) {
	answer := func(errno syscall.Errno) func(handle) error {
		return func(handle) error { return &Error{Verb: "ibv_destroy_x", Device: "dev0", Errno: errno} }
	}
	ctx := newObject(t, "context")
	flow := newObject(t, "flow", ctx)
	if err := flow.close(answer(syscall.EBUSY)); !errors.Is(err, ErrBusy) {
		t.Errorf("EBUSY: %v", err)
	}
	if err := ctx.close(freed); !errors.Is(err, ErrBusy) {
		t.Errorf("the flow is still there, and its context closed: %v", err)
	}
	if err := flow.close(answer(syscall.EIO)); !errors.Is(err, syscall.EIO) {
		t.Errorf("EIO: %v", err)
	}
	if err := flow.close(answer(syscall.EIO)); err != nil {
		t.Errorf("closing an abandoned object again: %v", err)
	}
	if err := ctx.close(answer(syscall.EBUSY)); !errors.Is(err, syscall.EBUSY) {
		t.Errorf("the library's answer is lost: %v", err)
	}
	if err := ctx.use(); !errors.Is(err, ErrClosed) {
		t.Errorf("a context whose flow was abandoned is still open: %v", err)
	}
}

// For the race detector: users, makers of children and closers run at once. No closed object may be
// used, and none may be closed while it has a child.
func TestCloseWaitsForCalls(t *testing.T) {
	for range 50 {
		parent := newObject(t, "counters object")
		alive := true // written under Close's lock, read under use's
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				for parent.use() == nil {
					if !alive {
						t.Error("used after it was destroyed")
					}
					parent.done()
				}
			})
			wg.Go(func() {
				for range 20 {
					child := new(object)
					if err := child.init("flow", "dev0", made, parent); err != nil {
						return
					}
					if err := child.close(freed); err != nil {
						t.Error(err)
					}
				}
			})
		}
		for {
			err := parent.close(func(handle) error { alive = false; return nil })
			if err == nil {
				break
			}
			if !errors.Is(err, ErrBusy) {
				t.Fatal(err)
			}
		}
		wg.Wait()
	}
}
