package queuepair

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/ibv"
	"github.com/flowtally/flowtally/ibv/ibvtest"
	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/internal/lab/soft"
	"github.com/flowtally/flowtally/shm"
)

func TestMain(m *testing.M) {
	kernel.Preload()
	_ = lab.Isolate(lab.ForTests) // without the privilege the tests run where they are
	code := m.Run()
	kernel.Close()
	os.Exit(code)
}

var kernel soft.Kernel

// connected is two queue pairs of a device, a and b, connected to each other. Both count sends.
type connected struct {
	*Set
	writer  *shm.Writer
	control *ibvtest.Control
	device  string
}

func newConnected(t *testing.T) *connected {
	t.Helper()
	nic := soft.NewNIC(t, &kernel)
	c := &connected{device: nic.Device, control: nic.Controlled(t)}
	nic.Env.Set(t.Setenv)
	var err error
	if c.writer, err = shm.Create(shm.Options{Path: filepath.Join(t.TempDir(), "t.mirror"), Counters: 64}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.writer.Discard() })
	cfg := dataplane.Config{RDMA: nic.Config.RDMA}
	for _, name := range []string{"a", "b"} {
		cfg.QueuePairs = append(cfg.QueuePairs, dataplane.QueuePair{
			Name: name, Device: c.device, SendDepth: 32, Receives: 64,
			Counters: []dataplane.CompletionCounter{{Name: name + "-send", Operations: []dataplane.Operation{dataplane.Send}}},
		})
	}
	cfg.QueuePairs[0].Connect = "b"
	c.Set = New(Options{
		Config: cfg, Logger: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug})),
		Mirror: c.writer, Publish: func(dataplane.Event) {},
		Entry: func(e shm.Entry) (shm.Handle, shm.Continuity, error) {
			h, err := c.writer.Add(e)
			return h, shm.Continuity{}, err
		},
		Refuse: func(string) error { return nil }, Closed: func() bool { return false },
	})
	if err := nic.Wire.Near.NS.Do(c.Start); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("closing the queue pairs: %v", err)
		}
	})
	return c
}

func (c *connected) queuePair(t *testing.T, name string) *queuePair {
	t.Helper()
	q, err := c.find(name)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// awaitLoss waits until both queue pairs have noticed the loss of their device. Closing one too early returns an error.
func (c *connected) awaitLoss(t *testing.T) {
	t.Helper()
	for _, name := range []string{"a", "b"} {
		q := c.queuePair(t, name)
		lab.Eventually(t, "the loss of "+name, func() bool { return q.current().lost != nil })
	}
}

// laggard is a completion counter of a slow device: it does not show the polled completions yet.
type laggard struct {
	completionSource
	index  *counterIndex
	polled []backend.Pair
}

func (l *laggard) count(done []ibv.WC, _ []backend.Pair, at int64, last bool) (bool, error) {
	return (pollSource{l.index}).count(done, l.polled, at, last)
}

// The device's counter lags behind ibv_poll_cq, and the device goes before the counter has caught up. No completion is
// lost, so there is no discontinuity.
func TestPolledCompletionsCountIfTheDeviceGoesFirst(t *testing.T) {
	c := newConnected(t)
	a := c.queuePair(t, "a")
	if err := a.call(t.Context(), func() error {
		e := a.worker.endpoint
		e.source = &laggard{e.source, &a.index, e.polled}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if posted, err := c.Post(t.Context(), "a", dataplane.Send, 10); err != nil || posted.Completed != 10 {
		t.Fatalf("%+v, %v", posted, err)
	}
	if err := c.control.Remove(c.device); err != nil {
		t.Fatal(err)
	}
	c.awaitLoss(t)
	if total, _ := a.counters[0].last.Load(); total != (backend.Pair{Packets: 10}) {
		t.Errorf("the total is %+v, want the 10 completions that were polled", total)
	}
	for _, e := range c.Entries() {
		if e.Name == "a-send" && e.Continuity.Discontinuities != 0 {
			t.Errorf("%d discontinuities", e.Continuity.Discontinuities)
		}
	}
}

// The queue pair is connected anew while an operation is outstanding. Its result stays unknown.
func TestPostFailsIfItsOperationsNeverEnd(t *testing.T) {
	c := newConnected(t)
	a := c.queuePair(t, "a")
	j := &job{posted: 1, done: make(chan struct{})}
	if err := a.call(t.Context(), func() error { // as if one was outstanding
		a.worker.job = j
		a.outstanding.Add(1)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if err := c.Connect(context.Background(), "a", dataplane.QueuePairAddress{}); err != nil {
		t.Fatal(err)
	}
	select {
	case <-j.done:
	case <-time.After(20 * time.Second):
		t.Fatal("the caller waits for ever")
	}
	if !errors.Is(j.err, dataplane.ErrNotConnected) {
		t.Errorf("the caller is told: %v", j.err)
	}
	if got, err := c.Post(t.Context(), "a", dataplane.Send, 3); err != nil || got != (dataplane.Posted{Completed: 3}) {
		t.Errorf("posting afterwards: %+v, %v", got, err)
	}
}

// stuck is a source that hangs in a verb while it counts completed sends.
type stuck struct {
	completionSource
	inside, returns chan struct{}
}

func (s *stuck) count(done []ibv.WC, totals []backend.Pair, at int64, last bool) (bool, error) {
	for _, c := range done {
		if opOf(c.WRID) == opSend {
			select {
			case s.inside <- struct{}{}:
			default: // a later post
			}
			<-s.returns
			break
		}
	}
	return s.completionSource.count(done, totals, at, last)
}

// The next call waits for its turn, and posts when the verb has returned.
func TestPostReturnsWithItsContextWhileAVerbHangs(t *testing.T) {
	c := newConnected(t)
	a := c.queuePair(t, "a")
	s := &stuck{inside: make(chan struct{}, 1), returns: make(chan struct{})}
	if err := a.call(t.Context(), func() error {
		s.completionSource = a.worker.endpoint.source
		a.worker.endpoint.source = s
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan error, 1)
	go func() {
		_, err := c.Post(ctx, "a", dataplane.Send, 3)
		left <- err
	}()
	<-s.inside
	cancel()
	select {
	case err := <-left:
		if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), `queue pair "a": posting send`) || !strings.Contains(err.Error(), "does not return") {
			t.Errorf("%v, want that the context has ended inside a verb", err)
		}
	case <-time.After(20 * time.Second):
		close(s.returns)
		t.Fatal("a caller whose context has ended waits for the worker")
	}
	if _, err := c.Post(ctx, "a", dataplane.Send, 1); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "waiting for its turn") {
		t.Errorf("the next caller: %v", err)
	}
	close(s.returns)
	if got, err := c.Post(t.Context(), "a", dataplane.Send, 3); err != nil || got != (dataplane.Posted{Completed: 3}) {
		t.Errorf("posting afterwards: %+v, %v", got, err)
	}
}

func TestHangingVerbDelaysNeitherConnectNorCheckDevices(t *testing.T) {
	c := newConnected(t)
	a := c.queuePair(t, "a")
	inside, returns := make(chan struct{}), make(chan struct{})
	go a.call(context.Background(), func() error {
		close(inside)
		<-returns
		return nil
	})
	defer func() {
		close(returns)
		c.awaitLoss(t)
	}()
	<-inside
	// Connect before removing the device. Afterwards b, whose worker is free, might learn of the loss and refuse.
	ctx, cancel := context.WithCancel(context.Background())
	connected := make(chan error, 1)
	go func() { connected <- c.Connect(ctx, "a", dataplane.QueuePairAddress{}) }()
	cancel()
	select {
	case err := <-connected:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%v, want that the context has ended", err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("a connection whose context has ended waits for the worker")
	}
	if err := c.control.Remove(c.device); err != nil {
		t.Fatal(err)
	}
	checked := make(chan struct{})
	go func() {
		for range cap(a.events) + 2 {
			c.CheckDevices()
		}
		close(checked)
	}()
	select {
	case <-checked:
	case <-time.After(20 * time.Second):
		t.Fatal("the check of the devices waits for the worker")
	}
}
