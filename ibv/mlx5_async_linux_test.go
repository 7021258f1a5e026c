//go:build cgo

package ibv

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// asyncBench counts one stream in the first counter of a bulk of four.
func asyncBench(t *testing.T, env ...string) (b *devxBench, counters *FlowCounters, q *AsyncQueries, want FlowCount) {
	t.Helper()
	b = newDevXBench(t, env...)
	counters = b.counts(4)
	b.rule(0, MatchParam{}, MatchParam{}, FlowActions{Counters: counters, DefaultMiss: true})
	f := b.udpTo(1)
	b.send(f, repeats)
	q = must(b.dx.AsyncQueries())(t)
	b.closes(q)
	return b, counters, q, times(repeats, f)
}

// This is test_devx_async_query of rdma-core's tests/test_mlx5_devx.py, with a flow counter in
// place of a queue pair.
func TestDevXAsyncQueryReturnsItsIDAndCounts(t *testing.T) {
	b, counters, q, want := asyncBench(t)
	const wrID = 100
	got := make([]FlowCount, 4)
	b.check(counters.QueryAsync(q, got, wrID))
	id, ok, err := q.Next(t.Context())
	if id != wrID || !ok || err != nil {
		t.Fatalf("answered %d, %v, %v, want %d", id, ok, err, wrID)
	}
	if diff := cmp.Diff([]FlowCount{want, {}, {}, {}}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A hundred queries of two objects and of different lengths run at once. Each completes once, under
// its own id, into its own destination.
func TestDevXAsyncQueriesDoNotMix(t *testing.T) {
	b, counters, q, want := asyncBench(t)
	other := b.counts(1)
	dst := make([][]FlowCount, 100)
	for i := range dst {
		f, n := counters, 1+i%4
		if i%5 == 0 {
			f, n = other, 1
		}
		dst[i] = slices.Repeat([]FlowCount{{Packets: 7}}, n)
		b.check(f.QueryAsync(q, dst[i], uint64(i)))
	}
	b.check(other.Close()) // running queries do not need the object any more
	seen := make(map[uint64]bool)
	for range dst {
		id, ok, err := q.Next(t.Context())
		if !ok || err != nil || seen[id] {
			t.Fatalf("answered %d, %v, %v; before: %v", id, ok, err, seen[id])
		}
		seen[id] = true
		all := make([]FlowCount, len(dst[id]))
		if id%5 != 0 {
			all[0] = want
		}
		if diff := cmp.Diff(all, dst[id]); diff != "" {
			t.Fatalf("query %d (-want +got):\n%s", id, diff)
		}
	}
	if len(seen) != len(dst) {
		t.Errorf("%d answers to %d queries", len(seen), len(dst))
	}
}

// A DevX with a receiver of results must report itself busy.
func TestDevXAsyncNextEndsWithItsContextAndWithClose(t *testing.T) {
	b, counters, q, _ := asyncBench(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	enough := errors.New("enough")
	cancel(enough)
	if _, ok, err := q.Next(ctx); ok || !errors.Is(err, enough) {
		t.Errorf("nothing was asked, and Next answers %v, %v", ok, err)
	}
	ended := make(chan error)
	go func() {
		_, _, err := q.Next(context.Background())
		ended <- err
	}()
	if err := b.dx.Close(); !errors.Is(err, ErrBusy) || !strings.Contains(err.Error(), "1 asynchronous queries") {
		t.Errorf("closing DevX under it: %v", err)
	}
	b.check(q.Close())
	if err := <-ended; !errors.Is(err, ErrClosed) {
		t.Errorf("who waited got %v", err)
	}
	if err := counters.QueryAsync(q, make([]FlowCount, 1), 1); !errors.Is(err, ErrClosed) {
		t.Errorf("asking after Close: %v", err)
	}
}

// Close must not wait for a Next that waits for Close: each round closes beside a Next that is
// being woken.
func TestDevXAsyncCloseEndsANextThatWakesUp(t *testing.T) {
	b := newDevXBench(t)
	counters := b.counts(1)
	for range 300 {
		q := must(b.dx.AsyncQueries())(t)
		answered, ended := make(chan struct{}), make(chan error, 1)
		go func() {
			dst := make([]FlowCount, 1)
			var once sync.Once
			for {
				err := counters.QueryAsync(q, dst, 1)
				if err == nil {
					_, _, err = q.Next(context.Background())
				}
				once.Do(func() { close(answered) })
				if err != nil {
					ended <- err
					return
				}
			}
		}()
		<-answered
		b.check(q.Close())
		if err := <-ended; !errors.Is(err, ErrClosed) {
			t.Fatalf("who asked and waited got %v", err)
		}
	}
}

// The kernel keeps a megabyte of results, and refuses the next query until one result is read.
func TestDevXAsyncQueriesAreRefusedPastAMegabyte(t *testing.T) {
	b := newDevXBench(t)
	counters := b.counts(MaxFlowCounters)
	q := must(b.dx.AsyncQueries())(t)
	b.closes(q)
	dst := make([]FlowCount, MaxFlowCounters)
	asked := 0
	for ; asked < 64; asked++ {
		if err := counters.QueryAsync(q, dst, uint64(asked)); err != nil {
			if !errors.Is(err, syscall.EAGAIN) {
				t.Fatal(err)
			}
			break
		}
	}
	if size := prmOutSize + MaxFlowCounters*trafficCounterSize; asked != 1<<20/size {
		t.Errorf("%d answers of %d bytes were let wait", asked, size)
	}
	for range asked {
		if _, ok, err := q.Next(t.Context()); !ok || err != nil {
			t.Fatal(ok, err)
		}
	}
	b.check(counters.QueryAsync(q, dst, 1))
}

// The descriptors must end with the receiver, not only with the context.
func TestDevXAsyncQueriesLeaveNoDescriptors(t *testing.T) {
	b := newDevXBench(t)
	receive := func() { b.check(must(b.dx.AsyncQueries())(t).Close()) }
	receive() // the last receiver's descriptors end with the next one's creation
	before := descriptors(t)
	for range 20 {
		receive()
	}
	noMoreThan(t, before)
}

// Each call fails in turn, and so does firmware.
func TestDevXAsyncQueryReturnsEveryCallsError(t *testing.T) {
	for _, c := range []struct {
		fails    string
		at       string // "make", "ask", "next", "answer"
		verb     string
		firmware string
	}{
		{"mlx5dv_devx_create_cmd_comp", "make", "mlx5dv_devx_create_cmd_comp", ""},
		{"mlx5dv_devx_obj_query_async", "ask", "mlx5dv_devx_obj_query_async", ""},
		{"mlx5dv_devx_get_async_cmd_comp", "next", "mlx5dv_devx_get_async_cmd_comp", ""},
		{"QUERY_FLOW_COUNTER", "answer", "mlx5dv_devx_obj_query_async", "firmware status"},
	} {
		if inRoot() && c.at == "next" {
			continue // a read(2) of the descriptor, which the uverbs kernel does not see and the shim does
		}
		t.Run(c.fails, func(t *testing.T) {
			b := newDevXBench(t, "FAIL", c.fails+"=ENOMEM")
			counters := b.counts(1)
			q, err := b.dx.AsyncQueries()
			at := "make"
			var ok bool
			dst := []FlowCount{{Packets: 7}}
			if err == nil {
				b.closes(q)
				at, err = "ask", counters.QueryAsync(q, dst, 5)
			}
			if err == nil {
				at = "next"
				if _, ok, err = q.Next(t.Context()); ok {
					at = "answer"
				}
			}
			var e *Error
			if !errors.As(err, &e) || at != c.at || e.Device != device() || !strings.Contains(e.Verb, c.verb) || !strings.Contains(err.Error(), c.firmware) {
				t.Errorf("at %q: %v", at, err)
			}
			if dst[0].Packets != 7 {
				t.Errorf("the destination is %+v", dst[0])
			}
		})
	}
	b, counters, q, _ := asyncBench(t)
	for _, dst := range [][]FlowCount{nil, make([]FlowCount, counters.Len()+1)} {
		if err := counters.QueryAsync(q, dst, 1); !errors.Is(err, errSize) {
			t.Errorf("%d counters: %v", len(dst), err)
		}
	}
	other := must(b.ctx.DevX())(t)
	b.closes(other)
	strange := must(other.AllocFlowCounters(1))(t)
	b.closes(strange)
	if err := strange.QueryAsync(q, make([]FlowCount, 1), 1); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("of another DevX: %v", err)
	}
}
