package plugin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/plugin/internal/queue"
	pluginv1 "github.com/flowtally/flowtally/plugin/proto/v1"
)

// remote is a Service that makes an RPC of each call. It does not reconnect: calls return ErrUnavailable after the
// connection is lost. Close calls hangUp and does not close the instance.
type remote struct {
	rpc    pluginv1.DataplaneClient
	hangUp func() error // closes the connection; nil if somebody else owns it

	stopBound time.Duration // the constant of that name, except in tests

	life     context.Context // canceled by Close
	end      context.CancelFunc
	once     sync.Once
	closeErr error // of hangUp
}

var _ dataplane.Service = (*remote)(nil)

func newRemote(cc grpc.ClientConnInterface, hangUp func() error) *remote {
	r := &remote{
		rpc:       pluginv1.NewDataplaneClient(cc),
		hangUp:    hangUp,
		stopBound: stopBound,
	}
	r.life, r.end = context.WithCancel(context.Background())
	return r
}

// callOptions raises gRPC's limit of 4 MiB to maxMessage.
func callOptions() []grpc.CallOption {
	return []grpc.CallOption{grpc.MaxCallRecvMsgSize(maxMessage), grpc.MaxCallSendMsgSize(maxMessage)}
}

// call makes one RPC and converts its error.
func call[Req, Resp any](
	ctx context.Context, r *remote, rpc func(context.Context, Req, ...grpc.CallOption) (Resp, error), req Req,
) (Resp, error) {
	var none Resp
	if r.life.Err() != nil {
		return none, dataplane.ErrClosed
	}
	resp, err := rpc(ctx, req, callOptions()...)
	if err != nil {
		return none, r.failed(ctx, err)
	}
	return resp, nil
}

// failed converts the error of an RPC. A cancellation that did not come from ctx means that the connection is gone.
func (r *remote) failed(ctx context.Context, err error) error {
	if r.life.Err() != nil {
		return dataplane.ErrClosed
	}
	if ctx.Err() == nil && status.Code(err) == codes.Canceled {
		return fmt.Errorf("%w: %s", dataplane.ErrUnavailable, status.Convert(err).Message())
	}
	return fromStatus(err)
}

// configure starts the instance in the plugin. It fails with ErrIncompatible if the plugin is too old for the configuration.
func (r *remote) configure(ctx context.Context, cfg *pluginv1.Config) (dataplane.Info, error) {
	resp, err := call(ctx, r, r.rpc.Configure, &pluginv1.ConfigureRequest{Config: cfg})
	if err == nil && len(cfg.GetQueuePairs()) > 0 {
		err = r.knowsQueuePairs(ctx)
	}
	if err == nil {
		err = r.knowsInterfaces(ctx, cfg)
	}
	return infoFromProto(resp.GetInfo()), err
}

func (r *remote) Info(ctx context.Context) (dataplane.Info, error) {
	resp, err := call(ctx, r, r.rpc.Info, &pluginv1.InfoRequest{})
	return infoFromProto(resp.GetInfo()), err
}

func (r *remote) AddFlows(ctx context.Context, flows ...flow.Flow) ([]dataplane.Placement, error) {
	msg, err := flowsToProto(flows)
	if err != nil {
		return nil, fmt.Errorf("adding flows: %w", err)
	}
	placed, err := r.addFlows(ctx, r.stopBound, msg)
	if err != nil {
		return nil, err
	}
	return placementsFromProto(placed)
}

func (r *remote) addFlows(ctx context.Context, bound time.Duration, flows []*pluginv1.Flow) ([]*pluginv1.Placement, error) {
	resp, _, err := ask(ctx, r, bound, "adding flows", r.rpc.AddFlows, &pluginv1.AddFlowsRequest{Flows: flows})
	return resp.GetPlacements(), err
}

func (r *remote) RemoveFlows(ctx context.Context, names ...string) error {
	// Protobuf cannot encode names that are not UTF-8. No flow has such a name.
	if i := slices.IndexFunc(names, func(s string) bool { return text(s) != s }); i >= 0 {
		return fmt.Errorf("removing flows: %w: %q", dataplane.ErrNotFound, names[i])
	}
	_, err := call(ctx, r, r.rpc.RemoveFlows, &pluginv1.RemoveFlowsRequest{Names: names})
	return err
}

func (r *remote) Placements(ctx context.Context, names ...string) ([]dataplane.Placement, error) {
	req := &pluginv1.PlacementsRequest{Names: carried(names)}
	if len(names) > 0 && len(req.Names) == 0 {
		req.Names = []string{""} // matches no flow; an empty list would mean all of them
	}

	resp, err := call(ctx, r, r.rpc.Placements, req)
	if err != nil {
		return nil, err
	}

	list := resp.GetPlacements()
	if len(names) > 0 { // older plugins ignore Names and return all flows
		asked := make(map[string]bool, len(names))
		for _, name := range names {
			asked[name] = true
		}
		list = slices.DeleteFunc(list, func(p *pluginv1.Placement) bool { return !asked[p.GetFlow().GetName()] })
	}
	return placementsFromProto(list)
}

// carried returns the names that protobuf can encode, which are those in UTF-8. No flow has another name.
func carried(names []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(s string) bool { return text(s) != s })
}

func (r *remote) Conditions(ctx context.Context) ([]dataplane.Condition, error) {
	resp, err := call(ctx, r, r.rpc.Conditions, &pluginv1.ConditionsRequest{})
	if err != nil {
		return nil, err
	}
	return conditionsFromProto(resp.GetConditions()), nil
}

func (r *remote) Events(ctx context.Context) (<-chan dataplane.Event, error) {
	q := queue.New(ctx)
	next, err := r.subscribe(q.Context())
	if err != nil {
		q.Close()
		return nil, err
	}
	go func() {
		defer q.Close()
		for ev, err := next(); err == nil; ev, err = next() {
			q.Push(ev)
		}
	}()
	return q.Out, nil
}

// subscribe returns after the plugin has confirmed the subscription, so that no later event is missed. next waits for the
// next event. The caller must call it until it returns an error: io.EOF after the instance has closed.
func (r *remote) subscribe(ctx context.Context) (next func() (dataplane.Event, error), err error) {
	sctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(r.life, cancel)
	release := func() {
		stop()
		cancel()
	}

	stream, err := call(sctx, r, r.rpc.Events, &pluginv1.EventsRequest{})
	if err != nil {
		release()
		return nil, err
	}
	header, err := stream.Header()
	if err == nil && len(header.Get(subscribedKey)) == 0 {
		// The plugin ended the call instead of confirming it. The stream has the reason.
		if _, err = stream.Recv(); err == nil || errors.Is(err, io.EOF) {
			err = errors.New("subscribing to events: the plugin did not confirm the subscription")
		}
	}
	if err != nil {
		release()
		return nil, r.failed(ctx, err)
	}

	return func() (dataplane.Event, error) {
		resp, err := stream.Recv()
		if err != nil {
			release()
			return dataplane.Event{}, err
		}
		return eventFromProto(resp.GetEvent()), nil
	}, nil
}

// shutdown closes the instance itself.
func (r *remote) shutdown(ctx context.Context) error {
	_, err := call(ctx, r, r.rpc.Close, &pluginv1.CloseRequest{})
	return err
}

func (r *remote) Close() error {
	r.once.Do(func() {
		r.end()
		if r.hangUp != nil {
			r.closeErr = r.hangUp()
		}
	})
	return r.closeErr
}
