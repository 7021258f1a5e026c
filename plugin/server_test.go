package plugin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/flow"
	pluginv1 "github.com/flowtally/flowtally/plugin/proto/v1"
	"github.com/flowtally/flowtally/probe"
)

// wire serves s in memory and returns a connection to it.
func wire(t testing.TB, register func(*grpc.Server)) *grpc.ClientConn {
	t.Helper()
	lis := bufconn.Listen(1 << 20)
	gs := grpc.NewServer(grpc.MaxRecvMsgSize(maxMessage))
	register(gs)
	go func() { _ = gs.Serve(lis) }()
	cc, err := grpc.NewClient("passthrough:///x",
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) }),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cc.Close()
		gs.Stop()
	})
	return cc
}

// stub is a Service whose methods a test sets.
type stub struct {
	dataplane.Service
	closed int
	err    error
}

func (s *stub) Info(context.Context) (dataplane.Info, error) {
	return dataplane.Info{Instance: "stub"}, s.err
}
func (s *stub) Close() error { s.closed++; return nil }
func (s *stub) AddFlows(context.Context, ...flow.Flow) ([]dataplane.Placement, error) {
	return nil, s.err
}
func (s *stub) Events(context.Context) (<-chan dataplane.Event, error) { return nil, s.err }

func TestServerServesOneInstanceBetweenConfigureAndClose(t *testing.T) {
	svc := &stub{}
	var given []dataplane.Config
	s := &server{life: t.Context(), log: slog.New(slog.DiscardHandler), factory: func(_ context.Context, cfg dataplane.Config, _ *slog.Logger) (dataplane.Service, error) {
		given = append(given, cfg)
		if len(given) == 1 {
			return nil, fmt.Errorf("first: %w", dataplane.ErrFull)
		}
		return svc, nil
	}}
	r := newRemote(wire(t, func(gs *grpc.Server) { pluginv1.RegisterDataplaneServer(gs, s) }), nil)
	ctx := t.Context()
	if _, err := r.Info(ctx); !errors.Is(err, dataplane.ErrInvalid) || !strings.Contains(err.Error(), "not configured") {
		t.Errorf("a call before Configure: %v", err)
	}
	if _, err := r.configure(ctx, nil); !errors.Is(err, dataplane.ErrInvalid) {
		t.Errorf("an absent configuration: %v", err)
	}
	if _, err := r.configure(ctx, &pluginv1.Config{Instance: "a"}); !errors.Is(err, dataplane.ErrFull) {
		t.Errorf("a factory that fails: %v", err)
	}
	if info, err := r.configure(ctx, &pluginv1.Config{Instance: "b"}); err != nil || info.Instance != "stub" || given[1].Instance != "b" {
		t.Errorf("configuring: %+v, %v", info, err)
	}
	if _, err := r.configure(ctx, &pluginv1.Config{}); !errors.Is(err, dataplane.ErrExists) {
		t.Errorf("configuring again: %v", err)
	}
	if err := r.shutdown(ctx); err != nil || svc.closed != 1 {
		t.Errorf("closing: %v, closed %d times", err, svc.closed)
	}
	if len(given) != 2 {
		t.Errorf("the factory was called %d times", len(given))
	}
}

// A host that cancels Configure leaves no instance behind, and the end of a completed call does not reach the
// instance.
func TestCanceledConfigureLeavesNoInstance(t *testing.T) {
	svc := &stub{}
	lives := make(chan context.Context, 2)
	release := make(chan struct{})
	s := &server{life: t.Context(), log: slog.New(slog.DiscardHandler), factory: func(ctx context.Context, _ dataplane.Config, _ *slog.Logger) (dataplane.Service, error) {
		lives <- ctx
		<-release
		return svc, nil
	}}
	r := newRemote(wire(t, func(gs *grpc.Server) { pluginv1.RegisterDataplaneServer(gs, s) }), nil)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		life := <-lives
		cancel()
		<-life.Done() // the host's giving up arrives
		close(release)
	}()
	if _, err := r.configure(ctx, &pluginv1.Config{}); !errors.Is(err, context.Canceled) {
		t.Errorf("giving up: %v", err)
	}
	var err error
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) { // the server may still be at it
		if _, err = r.configure(t.Context(), &pluginv1.Config{}); err == nil {
			break
		}
	}
	if err != nil || svc.closed != 1 {
		t.Fatalf("configuring after giving up: %v, closed %d times", err, svc.closed)
	}
	if life := <-lives; life.Err() != nil {
		t.Error("the instance's context ended with the call")
	}
}

// hostile calls methods with messages that no client of ours sends.
func TestHostileCallsAreErrorsAndDoNotPanic(t *testing.T) {
	svc := &stub{}
	cc := wire(t, func(gs *grpc.Server) { Register(gs, svc) })
	rpc := pluginv1.NewDataplaneClient(cc)
	for name, req := range map[string]*pluginv1.AddFlowsRequest{
		"empty flow":  {Flows: []*pluginv1.Flow{{}}},
		"huge name":   {Flows: []*pluginv1.Flow{{Name: strings.Repeat("x", 8<<20), Match: "any", Direction: 1, Action: 1}}},
		"bad match":   {Flows: []*pluginv1.Flow{{Name: "a", Match: "ipv4 and then some", Direction: 1, Action: 1}}},
		"many of bad": {Flows: make([]*pluginv1.Flow, 10000)},
	} {
		for i, f := range req.Flows {
			if f == nil {
				req.Flows[i] = &pluginv1.Flow{Name: fmt.Sprint(i), Match: "nonsense"}
			}
		}
		_, _, err := ask(t.Context(), newRemote(cc, nil), 0, name, rpc.AddFlows, req)
		if !errors.Is(err, dataplane.ErrInvalid) {
			t.Errorf("%s: %.300v", name, err)
		}
	}
	svc.err = dataplane.ErrClosed
	if _, err := newRemote(cc, nil).Events(t.Context()); !errors.Is(err, dataplane.ErrClosed) {
		t.Errorf("events of a closed instance: %v", err)
	}
}

// A newer client meets an older plugin, whose server knows fewer calls.
func TestCallThatAnOlderPluginLacksIsNotSupported(t *testing.T) {
	r := newRemote(wire(t, func(gs *grpc.Server) {
		pluginv1.RegisterDataplaneServer(gs, pluginv1.UnimplementedDataplaneServer{})
	}), nil)
	if _, err := r.Info(t.Context()); !errors.Is(err, probe.ErrNotSupported) || !strings.Contains(err.Error(), "Info") {
		t.Errorf("unary: %v", err)
	}
	if _, err := r.Events(t.Context()); !errors.Is(err, probe.ErrNotSupported) {
		t.Errorf("stream: %v", err)
	}
}
