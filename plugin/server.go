package plugin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/internal/hosted"
	pluginv1 "github.com/flowtally/flowtally/plugin/proto/v1"
)

// maxMessage limits one message in either direction. For scale: 65,536 flows with long matches, labels and rejections take
// about 40 MB.
const maxMessage = 256 << 20

// subscribedKey is a header of an Events stream. The plugin sends it to confirm the subscription.
const subscribedKey = "flowtally-subscribed"

// Factory creates the instance of a plugin. Pass ctx on to engine.New, because it has values from the host, such as the
// RDMA devices to avoid. ctx ends with the process, or if the host gives up during the call. l writes to the host's log.
type Factory func(ctx context.Context, cfg dataplane.Config, l *slog.Logger) (dataplane.Service, error)

// server passes calls to a Service. In a plugin, Configure creates it. On a control socket, it is a running one.
type server struct {
	pluginv1.UnimplementedDataplaneServer

	factory Factory         // nil on a control socket, where Configure and Close fail
	life    context.Context // ends with the process
	log     *slog.Logger
	host    hosted.Host
	hostErr error // from reading host

	// making is locked during a call of factory, so that Close waits for it.
	making sync.Mutex

	mu     sync.Mutex
	svc    dataplane.Service
	closed bool
}

func (s *server) service() (dataplane.Service, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.svc != nil:
		return s.svc, nil
	case s.closed:
		return nil, dataplane.ErrClosed
	}
	return nil, invalid("this plugin is not configured yet: the first call must be Configure")
}

func (s *server) Configure(ctx context.Context, req *pluginv1.ConfigureRequest) (*pluginv1.ConfigureResponse, error) {
	if s.factory == nil {
		return nil, toStatus(fmt.Errorf("configuring: %w: the instance runs already, and the program that started it configures it", dataplane.ErrPermission))
	}
	defer s.collectLess(len(req.GetConfig().GetFlows()))()
	cfg, err := configFromProto(req.GetConfig())
	if err != nil {
		return nil, toStatus(fmt.Errorf("configuring: %w", err))
	}

	svc, err := s.configure(ctx, cfg)
	if err != nil {
		return nil, toStatus(err)
	}
	info, err := svc.Info(ctx)
	if err != nil {
		return nil, toStatus(err)
	}
	s.relieve(len(cfg.Flows))
	return &pluginv1.ConfigureResponse{Info: infoToProto(info)}, nil
}

// A call with manyFlows flows or more leaves megabytes of garbage. relieve waits for relieveAfter, until the response has
// been sent.
const (
	manyFlows    = 1024
	relieveAfter = time.Second
)

// relieve returns the memory of a large call to the system. The Go runtime would keep it for the next such call, which may
// never come. Only a plugin does this: on a control socket the process belongs to somebody else.
func (s *server) relieve(flows int) {
	if s.factory != nil && flows >= manyFlows {
		time.AfterFunc(relieveAfter, func() {
			runtime.GC() // and FreeOSMemory collects again, which frees the sync.Pools
			debug.FreeOSMemory()
		})
	}
}

// collectLess makes the garbage collector run half as often during a large call, until the caller calls asBefore. The heap
// grows mostly by what the instance keeps, and relieve frees the rest. Like relieve, it does nothing on a control socket.
func (s *server) collectLess(flows int) (asBefore func()) {
	if s.factory == nil || flows < manyFlows || os.Getenv("GOGC") != "" {
		return func() {}
	}
	was := debug.SetGCPercent(200)
	return func() { debug.SetGCPercent(was) }
}

// configure creates the instance. It fails if there is one already.
func (s *server) configure(ctx context.Context, cfg dataplane.Config) (dataplane.Service, error) {
	s.making.Lock()
	defer s.making.Unlock()

	s.mu.Lock()
	svc, closed := s.svc, s.closed
	s.mu.Unlock()
	switch {
	case closed:
		return nil, dataplane.ErrClosed
	case svc != nil:
		return nil, fmt.Errorf("configuring: %w: this plugin is configured already", dataplane.ErrExists)
	case s.hostErr != nil:
		return nil, s.hostErr
	}

	// The instance may keep its context. The end of the call must cancel it only while the factory runs.
	life, cancel := context.WithCancel(s.life)
	stop := context.AfterFunc(ctx, cancel)
	svc, err := s.factory(hosted.With(life, s.host), cfg, s.log)
	if err == nil && svc == nil {
		err = errors.New("configuring: the plugin's factory returned no instance")
	}

	if !stop() { // the host has given up meanwhile
		switch {
		case err == nil: // nobody would ever close this instance
			err = errors.Join(context.Cause(ctx), svc.Close())
		case errors.Is(err, context.Canceled): // by AfterFunc above; report the reason instead
			err = context.Cause(ctx)
		}
	}
	if err != nil {
		cancel()
		return nil, err
	}

	s.mu.Lock()
	s.svc = svc
	s.mu.Unlock()
	return svc, nil
}

func (s *server) Info(ctx context.Context, _ *pluginv1.InfoRequest) (*pluginv1.InfoResponse, error) {
	svc, err := s.service()
	if err != nil {
		return nil, toStatus(err)
	}
	info, err := svc.Info(ctx)
	if err != nil {
		return nil, toStatus(err)
	}
	return &pluginv1.InfoResponse{Info: infoToProto(info)}, nil
}

func (s *server) AddFlows(stream grpc.ClientStreamingServer[pluginv1.AddFlowsRequest, pluginv1.AddFlowsResponse]) error {
	return serve(stream, func(ctx context.Context, req *pluginv1.AddFlowsRequest) (*pluginv1.AddFlowsResponse, error) {
		svc, err := s.service()
		if err != nil {
			return nil, toStatus(err)
		}
		flows, err := flowsFromProto(req.GetFlows())
		if err != nil {
			return nil, toStatus(fmt.Errorf("adding flows: %w", err))
		}
		s.asked(ctx, "adding flows")
		placed, err := svc.AddFlows(ctx, flows...)
		if err != nil {
			return nil, toStatus(err)
		}
		s.relieve(len(flows))
		return &pluginv1.AddFlowsResponse{Placements: placementsToProto(placed)}, nil
	})
}

func (s *server) RemoveFlows(ctx context.Context, req *pluginv1.RemoveFlowsRequest) (*pluginv1.RemoveFlowsResponse, error) {
	svc, err := s.service()
	if err != nil {
		return nil, toStatus(err)
	}
	s.asked(ctx, "removing flows")
	if err := svc.RemoveFlows(ctx, req.GetNames()...); err != nil {
		return nil, toStatus(err)
	}
	return &pluginv1.RemoveFlowsResponse{}, nil
}

func (s *server) Placements(ctx context.Context, req *pluginv1.PlacementsRequest) (*pluginv1.PlacementsResponse, error) {
	svc, err := s.service()
	if err != nil {
		return nil, toStatus(err)
	}
	placed, err := svc.Placements(ctx, req.GetNames()...)
	if err != nil {
		return nil, toStatus(err)
	}
	return &pluginv1.PlacementsResponse{Placements: placementsToProto(placed)}, nil
}

func (s *server) Conditions(ctx context.Context, _ *pluginv1.ConditionsRequest) (*pluginv1.ConditionsResponse, error) {
	svc, err := s.service()
	if err != nil {
		return nil, toStatus(err)
	}
	conditions, err := svc.Conditions(ctx)
	if err != nil {
		return nil, toStatus(err)
	}
	return &pluginv1.ConditionsResponse{Conditions: conditionsToProto(conditions)}, nil
}

func (s *server) Events(_ *pluginv1.EventsRequest, stream grpc.ServerStreamingServer[pluginv1.EventsResponse]) error {
	svc, err := s.service()
	if err != nil {
		return toStatus(err)
	}
	events, err := svc.Events(stream.Context())
	if err != nil {
		return toStatus(err)
	}

	// Confirm the subscription: the client's Events returns once it has the header.
	if err := stream.SendHeader(metadata.Pairs(subscribedKey, "1")); err != nil {
		return err
	}
	for ev := range events {
		if err := stream.Send(&pluginv1.EventsResponse{Event: eventToProto(ev)}); err != nil {
			return err
		}
	}
	return nil
}

func (s *server) Close(_ context.Context, _ *pluginv1.CloseRequest) (*pluginv1.CloseResponse, error) {
	if s.factory == nil {
		return nil, toStatus(fmt.Errorf("closing: %w: the program that started the instance ends it", dataplane.ErrPermission))
	}
	if err := s.close(); err != nil {
		return nil, toStatus(err)
	}
	return &pluginv1.CloseResponse{}, nil
}

// close closes the instance, if there is one, and makes later Configure calls fail. It waits for one under way. svc stays
// set, so that later calls reach it and return ErrClosed.
func (s *server) close() error {
	s.making.Lock()
	defer s.making.Unlock()

	s.mu.Lock()
	svc := s.svc
	s.closed = true
	s.mu.Unlock()

	if svc == nil {
		return nil
	}
	return svc.Close()
}
