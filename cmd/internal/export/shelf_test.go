package export

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// rendered counts its renderings. Each has n bytes and shows the poll cycle.
type rendered struct {
	n, times int
	cycle    stamp
}

func (r *rendered) render(b *bytes.Buffer) (string, stamp, error) {
	r.times++
	b.Write(make([]byte, r.n))
	return "text/plain", r.cycle, nil
}

func (r *rendered) now() (stamp, bool) { return r.cycle, true }

func mustTake(t *testing.T, s *shelf, kind string, r *rendered, cut func() error) *claim {
	t.Helper()
	c, err := s.take(t.Context(), request{kind: kind, now: r.now, render: r.render, cut: cut})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Each format has its own response. Each poll cycle has a new one.
func TestResponseIsSharedForAPollCycle(t *testing.T) {
	s := newShelf(1 << 20)
	r := &rendered{n: 100, cycle: stamp{cycle: 7, period: time.Hour}}
	for range 10 {
		s.release(mustTake(t, s, "a", r, nil))
	}
	if r.times != 1 {
		t.Errorf("%d renderings in one poll cycle", r.times)
	}
	s.release(mustTake(t, s, "b", r, nil))
	r.cycle.cycle++
	s.release(mustTake(t, s, "a", r, nil))
	if r.times != 3 {
		t.Errorf("%d renderings of two formats and two cycles, want 3", r.times)
	}
	r.cycle = stamp{} // no mirror, or no period: nothing tells how long a response holds
	for range 3 {
		s.release(mustTake(t, s, "a", r, nil))
	}
	if r.times != 6 {
		t.Errorf("%d renderings, want one more for each request without a poll period", r.times)
	}
	if len(s.all) != 2 {
		t.Errorf("%d responses are kept, want the last one of each format", len(s.all))
	}
}

// All clients that arrive while a response is being rendered share the next one.
func TestCrowdSharesOneRendering(t *testing.T) {
	s := newShelf(1 << 20)
	began, goOn := make(chan struct{}, 2), make(chan struct{})
	times := 0
	render := func(b *bytes.Buffer) (string, stamp, error) {
		times++
		began <- struct{}{}
		<-goOn
		return "", stamp{}, nil
	}
	now := func() (stamp, bool) { return stamp{}, false }
	var all sync.WaitGroup
	take := func(ctx context.Context) {
		c, err := s.take(ctx, request{kind: "a", now: now, render: render})
		if err != nil {
			t.Error(err)
			return
		}
		s.release(c)
	}
	all.Go(func() { take(t.Context()) })
	<-began
	waits := make(chan struct{})
	for range 200 {
		all.Go(func() { take(waiting{t.Context(), waits}) })
	}
	for range 200 {
		<-waits
	}
	// One whose client has gone does not wait.
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.take(gone, request{kind: "a", now: now, render: render}); !errors.Is(err, context.Canceled) {
		t.Errorf("a client that has gone: %v", err)
	}
	goOn <- struct{}{}
	for range 199 { // the others, while one of them renders the next one
		<-waits
	}
	goOn <- struct{}{}
	all.Wait()
	if times != 2 {
		t.Errorf("%d renderings for one client and a crowd of 200, want 2", times)
	}
}

// waiting is a context that tells when its client begins to wait.
type waiting struct {
	context.Context
	waits chan struct{}
}

func (w waiting) Done() <-chan struct{} {
	w.waits <- struct{}{}
	return w.Context.Done()
}

// When slow clients keep too much memory, the shelf drops the oldest response together with its connections, so that a
// new client gets its own.
func TestOldestResponseMakesRoom(t *testing.T) {
	s := newShelf(4096)
	r := &rendered{n: 1500}
	cuts := make(map[string]int)
	cut := func(name string) func() error {
		return func() error { cuts[name]++; return nil }
	}
	first := mustTake(t, s, "a", r, cut("first"))
	second := mustTake(t, s, "a", r, cut("second"))
	third := mustTake(t, s, "a", r, cut("third"))
	if fmt.Sprint(cuts) != "map[first:1]" {
		t.Errorf("cut off: %v, want the first alone", cuts)
	}
	for _, c := range []*claim{first, second, third} {
		s.release(c)
	}
	r.n = 10_000 // a response alone may be longer
	s.release(mustTake(t, s, "a", r, nil))
	if len(s.all) != 1 || s.held < 10_000 || s.held > 20_000 {
		t.Errorf("%d responses of %d bytes are kept", len(s.all), s.held)
	}
	mustTake(t, s, "b", r, func() error { return errors.ErrUnsupported })
	if _, err := s.take(t.Context(), request{kind: "a", now: r.now, render: r.render}); !errors.Is(err, errHeld) {
		t.Errorf("a response beside one that cannot be cut off: %v", err)
	}
}

// 600 clients ask for 8,000 counters and read nothing.
func TestCrowdOfSlowReadersStarvesNoScrape(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	const counters, readers, scrapes = 8000, 600, 20
	m := newMirror(t)
	values := make(map[string][2]uint64, counters)
	for i := range counters {
		name := fmt.Sprintf("tenant-%05d", i)
		m.add(webEntry(name))
		values[name] = [2]uint64{uint64(i) * 7919, uint64(i) * 104729}
	}
	m.publish(values)
	e := newExporter(t, Options{Path: m.path})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- e.Serve(ctx, l, ServeOptions{}) }()
	scrape := func() error {
		response, err := http.Get("http://" + l.Addr().String() + "/metrics")
		if err != nil {
			return err
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		if n := strings.Count(string(body), "\nflowtally_packets_total{"); err == nil && (response.StatusCode != http.StatusOK || n != counters) {
			err = fmt.Errorf("%s with %d counters", response.Status, n)
		}
		return err
	}
	if err := scrape(); err != nil {
		t.Fatal(err)
	}
	before := inUse()
	for range readers {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if err := c.(*net.TCPConn).SetReadBuffer(4096); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(c, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
	}
	for i := range scrapes {
		if err := scrape(); err != nil {
			t.Errorf("scrape %d: %v", i, err)
		}
	}
	used := inUse() - before
	t.Logf("%d readers took %d MiB", readers, used>>20)
	if used > 2*mostHeld {
		t.Errorf("%d readers took %d bytes", readers, used)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// inUse returns the bytes of reachable heap.
func inUse() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
