package plugin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/flowtally/flowtally/dataplane"
	pluginv1 "github.com/flowtally/flowtally/plugin/proto/v1"
)

// postFunc is the Post method of a dataplane.QueuePairs without other methods.
type postFunc func(ctx context.Context, name string) (dataplane.Posted, error)

type postOnly struct {
	dataplane.QueuePairs
	post postFunc
}

func (p postOnly) Post(ctx context.Context, name string, _ dataplane.Operation, _ int) (dataplane.Posted, error) {
	return p.post(ctx, name)
}

// posting is a Service whose Post returns posted and err.
type posting struct {
	stub
	posted dataplane.Posted
}

func (p *posting) QueuePairs() dataplane.QueuePairs {
	return postOnly{post: func(context.Context, string) (dataplane.Posted, error) { return p.posted, p.err }}
}

// The number of operations that completed before an error crosses the wire beside the error, over two wires too.
func TestCompletedOperationsCrossTheWireWithAnError(t *testing.T) {
	svc := &posting{posted: dataplane.Posted{Completed: 7, Errors: 2}}
	svc.err = fmt.Errorf("posting: %w", dataplane.ErrNotConnected)
	serve := func(svc dataplane.Service) *remote {
		return newRemote(wire(t, func(gs *grpc.Server) { Register(gs, svc) }), nil)
	}
	for name, r := range map[string]*remote{"one wire": serve(svc), "two": serve(serve(svc))} {
		got, err := r.QueuePairs().Post(t.Context(), "a", dataplane.Send, 9)
		if got != svc.posted || !errors.Is(err, dataplane.ErrNotConnected) {
			t.Errorf("%s: %+v, %v; want %+v beside ErrNotConnected", name, got, err, svc.posted)
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
		if got, err := r.QueuePairs().Post(t.Context(), "a", dataplane.Send, 9); !errors.Is(err, dataplane.ErrClosed) || got != (dataplane.Posted{}) {
			t.Errorf("%s, closed: %+v, %v", name, got, err)
		}
	}
}

// stopped is a Service that posts until its caller gives up.
type stopped struct {
	posting
	begun chan struct{}
}

func (s *stopped) QueuePairs() dataplane.QueuePairs {
	return postOnly{post: func(ctx context.Context, name string) (dataplane.Posted, error) {
		s.begun <- struct{}{}
		<-ctx.Done()
		return s.posted, fmt.Errorf("queue pair %q: %w", name, ctx.Err())
	}}
}

// The number of operations that completed before their caller gave up crosses the wire, over two wires too.
func TestCompletedOperationsReachACallerThatGaveUp(t *testing.T) {
	svc := &stopped{posting{posted: dataplane.Posted{Completed: 7, Errors: 2}}, make(chan struct{}, 1)}
	serve := func(svc dataplane.Service) *remote {
		return newRemote(wire(t, func(gs *grpc.Server) { Register(gs, svc) }), nil)
	}
	for name, r := range map[string]*remote{"one wire": serve(svc), "two": serve(serve(svc))} {
		for _, c := range []struct {
			why error
			end func(context.Context) (context.Context, context.CancelFunc)
		}{
			{context.Canceled, context.WithCancel},
			{context.DeadlineExceeded, newEnding},
		} {
			ctx, end := c.end(t.Context())
			go func() {
				<-svc.begun
				end()
			}()
			got, err := r.QueuePairs().Post(ctx, "a", dataplane.Send, 9)
			if got != svc.posted || !errors.Is(err, c.why) || errors.Is(err, dataplane.ErrUnavailable) {
				t.Errorf("%s: %+v, %v; want %+v beside %v", name, got, err, svc.posted, c.why)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if got, err := r.QueuePairs().Post(ctx, "a", dataplane.Send, 9); got != (dataplane.Posted{}) || !errors.Is(err, context.Canceled) {
			t.Errorf("%s, given up before: %+v, %v", name, got, err)
		}
	}
}

// The wait for an instance that does not stop is bounded, and an unknown number of completions is an
// error, not zero.
func TestPostGivesUpOnAnInstanceThatDoesNotStop(t *testing.T) {
	svc := &unstoppable{begun: make(chan struct{}, 1), life: t.Context()}
	r := newRemote(wire(t, func(gs *grpc.Server) { Register(gs, svc) }), nil)
	r.stopBound = time.Millisecond
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-svc.begun
		cancel()
	}()
	got, err := r.QueuePairs().Post(ctx, "a", dataplane.Send, 9)
	if got != (dataplane.Posted{}) || !errors.Is(err, context.Canceled) || !errors.Is(err, dataplane.ErrUnavailable) {
		t.Errorf("%+v, %v", got, err)
	}
}

// unstoppable is a Service whose Post ignores the end of its context.
type unstoppable struct {
	stub
	begun chan struct{}
	life  context.Context
}

func (u *unstoppable) QueuePairs() dataplane.QueuePairs {
	return postOnly{post: func(context.Context, string) (dataplane.Posted, error) {
		u.begun <- struct{}{}
		<-u.life.Done()
		return dataplane.Posted{Completed: 9}, nil
	}}
}

// ending is a context whose deadline passes when it is told so.
type ending struct {
	context.Context
	done chan struct{}
}

func newEnding(ctx context.Context) (context.Context, context.CancelFunc) {
	e := &ending{ctx, make(chan struct{})}
	return e, func() { close(e.done) }
}

func (e *ending) Done() <-chan struct{} { return e.done }

func (e *ending) Err() error {
	select {
	case <-e.done:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// older is a server that was built before there were queue pairs.
type older struct{ *server }

func (older) QueuePairs(context.Context, *pluginv1.QueuePairsRequest) (*pluginv1.QueuePairsResponse, error) {
	return nil, status.Error(codes.Unimplemented, "unknown method QueuePairs")
}

// A plugin that ignores queue pairs is refused with a configuration that has some, and serves one
// without.
func TestOlderPluginIsIncompatibleOnlyWithQueuePairs(t *testing.T) {
	configure := func(cfg *pluginv1.Config) error {
		s := &server{life: t.Context(), log: slog.New(slog.DiscardHandler), factory: func(context.Context, dataplane.Config, *slog.Logger) (dataplane.Service, error) {
			return &stub{}, nil
		}}
		_, err := newRemote(wire(t, func(gs *grpc.Server) { pluginv1.RegisterDataplaneServer(gs, older{s}) }), nil).configure(t.Context(), cfg)
		return err
	}
	if err := configure(&pluginv1.Config{}); err != nil {
		t.Errorf("without queue pairs: %v", err)
	}
	if err := configure(&pluginv1.Config{QueuePairs: []*pluginv1.QueuePair{{Name: "a"}}}); !errors.Is(err, ErrIncompatible) {
		t.Errorf("with a queue pair: %v, want ErrIncompatible", err)
	}
}
