//go:build cgo

package ibv

import (
	"errors"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/flowtally/flowtally/probe"
)

// Pollers read for as long as the instance runs.
func TestReadAllocatesNothing(t *testing.T) {
	b := newBench(t, newWire(t))
	n := b.counters(both...)
	b.flow(n, b.toUs())
	values, wc := make([]uint64, 2), make([]WC, 4)
	if a := testing.AllocsPerRun(100, func() {
		if n.Read(values, 0) != nil {
			t.Error("a read")
		}
	}); a != 0 {
		t.Errorf("Read allocates %v times", a)
	}
	if a := testing.AllocsPerRun(100, func() {
		if _, err := b.cq.Poll(wc); err != nil {
			t.Error(err)
		}
	}); a != 0 {
		t.Errorf("Poll allocates %v times", a)
	}
}

// until repeats fn until stop is closed.
func until(stop <-chan struct{}, fn func()) {
	for {
		select {
		case <-stop:
			return
		default:
			fn()
		}
	}
}

// For the race detector: goroutines make and read flows, one waits for events, and closers come too
// early.
func TestMakersReadersAndClosersShareOneDevice(t *testing.T) {
	b := newBench(t, newWire(t))
	shared := b.counters(both...)
	b.flow(shared, b.toUs())
	stop := make(chan struct{})
	time.AfterFunc(300*time.Millisecond, func() { close(stop) })
	var wg sync.WaitGroup
	forever := func(fn func()) { wg.Go(func() { until(stop, fn) }) }
	forever(func() {
		if err := shared.Read(make([]uint64, 2), 0); err != nil {
			t.Error(err)
		}
	})
	for range 2 {
		forever(func() {
			n, err := b.ctx.CreateCounters()
			if err != nil {
				t.Error(err)
				return
			}
			err = n.Attach(both[0])
			f, ferr := b.qp.CreateFlow(FlowAttr{Port: 1, Priority: 1, Flags: FlowDontTrap, Specs: []Spec{b.toUs(), CountSpec{Counters: n}}})
			if err = errors.Join(err, ferr); err != nil {
				t.Error(err)
				return
			}
			if err := n.Close(); !errors.Is(err, ErrBusy) {
				t.Errorf("closing counters in use: %v", err)
			}
			if err := errors.Join(f.Close(), n.Close()); err != nil {
				t.Error(err)
			}
		})
	}
	for _, o := range []interface{ Close() error }{b.ctx, b.qp, b.pd, b.cq, b.lib} {
		forever(func() {
			if err := o.Close(); !errors.Is(err, ErrBusy) {
				t.Errorf("closed under its users: %v", err)
			}
			time.Sleep(time.Millisecond)
		})
	}
	wg.Wait()
}

// For the race detector: four queue pairs post and poll, and one counter counts their completions
// while other goroutines read it and try to close it.
func TestCompCntrIsExactWhileQueuePairsPostAtOnce(t *testing.T) {
	const batches, batch = 100, 16
	b := newData(t, newWire(t), Options{Library: softLibs(t).Shim})
	k, m := b.compCntr(), b.region()
	var workers, watchers sync.WaitGroup
	stop := make(chan struct{})
	for range 4 {
		b.cq = must(b.ctx.CreateCQ(CQOptions{CQE: 64}))(t) // each polls its own
		b.closes(b.cq)
		cq := b.cq
		x, _ := b.rc(func(x, _ *QP) { b.check(x.AttachCompCntr(k, QPAttachCompCntrOpRDMAWrite)) })
		workers.Go(func() {
			list, wcs := repeat(batch, write(m)), make([]WC, batch)
			for range batches {
				if n, err := x.PostSend(list); n != batch || err != nil {
					t.Error(n, err)
					return
				}
				for got := 0; got < batch; {
					n, err := cq.Poll(wcs)
					if got += n; err != nil {
						t.Error(err)
						return
					}
				}
			}
		})
	}
	watch := func(fn func()) {
		watchers.Go(func() {
			until(stop, func() {
				fn()
				time.Sleep(100 * time.Microsecond)
			})
		})
	}
	last := uint64(0)
	watch(func() {
		now, err := k.Read()
		if now < last || err != nil {
			t.Errorf("it read %d, then %d: %v", last, now, err)
		}
		last = now
	})
	for _, o := range []interface{ Close() error }{k, b.pd, b.ctx} {
		watch(func() {
			if err := o.Close(); !errors.Is(err, ErrBusy) {
				t.Errorf("closed under its users: %v", err)
			}
		})
	}
	workers.Wait()
	close(stop)
	watchers.Wait()
	b.counts(k, 4*batches*batch, 0)
}

func TestCloseEndsNextEvent(t *testing.T) {
	b := newLibrary(t, newWire(t), "")
	b.open()
	got := make(chan error)
	go func() {
		_, err := b.ctx.NextEvent(t.Context())
		got <- err
	}()
	time.Sleep(20 * time.Millisecond) // it waits, most likely; both orders are right
	b.check(b.ctx.Close())
	if err := <-got; !errors.Is(err, ErrClosed) {
		t.Errorf("got %v, want ErrClosed", err)
	}
}

// The C side would misread an object of another device or of the wrong type, so Go must refuse it
// first.
func TestObjectsOfAnotherDeviceAreRefused(t *testing.T) {
	b := newBench(t, newWire(t))
	if _, err := b.pd.CreateQP(QPOptions{Type: QPTRC, Cap: smallCap}); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("a queue pair without completion queues: %v", err)
	}
	for _, cqe := range []int{-1, 1 << 40} {
		if _, err := b.ctx.CreateCQ(CQOptions{CQE: cqe}); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("a completion queue of %d: %v", cqe, err)
		}
	}
	if _, err := b.qp.CreateFlow(FlowAttr{Port: 1, Specs: []Spec{b.toUs(), CountSpec{}}}); err == nil {
		t.Error("a COUNT spec without counters")
	}
	closed := must(b.ctx.CreateCounters())(t)
	b.check(closed.Close())
	if _, err := b.qp.CreateFlow(FlowAttr{Port: 1, Specs: []Spec{b.toUs(), CountSpec{Counters: closed}}}); !errors.Is(err, ErrClosed) {
		t.Errorf("counters that were closed: %v", err)
	}
	n := b.counters(both...)
	for _, typ := range []FlowAttrType{FlowAttrAllDefault, FlowAttrMCDefault, FlowAttrSniffer} {
		if _, err := b.qp.CreateFlow(FlowAttr{Type: typ, Port: 1, Specs: []Spec{CountSpec{Counters: n}}}); !errors.Is(err, probe.ErrNotSupported) {
			t.Errorf("COUNT in a flow of type %v: %v", typ, err)
		}
	}
	if _, err := b.qp.CreateFlow(FlowAttr{Port: 9, Specs: []Spec{b.toUs()}}); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("a port that is not there: %v", err)
	}
	var v [2]uint64
	if _, err := b.ctx.QueryPort(9); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("querying a port that is not there: %v", err)
	}
	if err := n.Read(v[:0], 0); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("reading into nothing: %v", err)
	}
}
