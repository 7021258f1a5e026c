package plugin

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"

	"github.com/flowtally/flowtally/dataplane"
	pluginv1 "github.com/flowtally/flowtally/plugin/proto/v1"
	"github.com/flowtally/flowtally/probe"
)

// The calls about queue pairs, in the Client, in remote and in the server.

// QueuePairs implements dataplane.Service.
func (c *Client) QueuePairs() dataplane.QueuePairs { return clientQueuePairs{c} }

// clientQueuePairs sends each call to the current plugin.
type clientQueuePairs struct{ c *Client }

func (q clientQueuePairs) List(ctx context.Context) ([]dataplane.QueuePairState, error) {
	s, err := q.c.session()
	if err != nil {
		return nil, err
	}
	pairs, err := s.svc.QueuePairs().List(ctx)
	return pairs, q.c.sessionError(ctx, s, err)
}

// Connect is not repeated after a restart. The queue pair then has another number, which its peer must learn.
func (q clientQueuePairs) Connect(ctx context.Context, name string, peer dataplane.QueuePairAddress) error {
	s, err := q.c.session()
	if err != nil {
		return err
	}
	return q.c.sessionError(ctx, s, s.svc.QueuePairs().Connect(ctx, name, peer))
}

func (q clientQueuePairs) Post(ctx context.Context, name string, op dataplane.Operation, count int) (dataplane.Posted, error) {
	s, err := q.c.session()
	if err != nil {
		return dataplane.Posted{}, err
	}
	posted, err := s.svc.QueuePairs().Post(ctx, name, op, count)
	return posted, q.c.sessionError(ctx, s, err)
}

// QueuePairs implements dataplane.Service.
func (r *remote) QueuePairs() dataplane.QueuePairs { return remoteQueuePairs{r} }

type remoteQueuePairs struct{ r *remote }

func (q remoteQueuePairs) List(ctx context.Context) ([]dataplane.QueuePairState, error) {
	resp, err := call(ctx, q.r, q.r.rpc.QueuePairs, &pluginv1.QueuePairsRequest{})
	if err != nil {
		return nil, err
	}
	return queuePairStatesFromProto(resp.GetQueuePairs())
}

// knowsQueuePairs returns ErrIncompatible if the plugin is too old to know queue pairs. It would silently ignore those of
// the configuration.
func (r *remote) knowsQueuePairs(ctx context.Context) error {
	_, err := r.QueuePairs().List(ctx)
	if errors.Is(err, probe.ErrNotSupported) {
		return fmt.Errorf("%w: it knows no queue pairs, and the configuration has some: install the plugin of this program's release", ErrIncompatible)
	}
	return err
}

func (q remoteQueuePairs) Connect(ctx context.Context, name string, peer dataplane.QueuePairAddress) error {
	if text(name) != name { // protobuf cannot carry the name, and no queue pair has it
		return fmt.Errorf("connecting: %w: queue pair %q", dataplane.ErrNotFound, name)
	}
	msg := addressToProto(peer)
	if text(msg.Gid) != msg.Gid {
		return fmt.Errorf("connecting queue pair %q: %w", name, invalid("gid %q is not UTF-8", msg.Gid))
	}
	_, err := call(ctx, q.r, q.r.rpc.ConnectQueuePair, &pluginv1.ConnectQueuePairRequest{Name: name, Peer: msg})
	return err
}

// Post returns the completed operations together with an error, including that of ctx.
func (q remoteQueuePairs) Post(ctx context.Context, name string, op dataplane.Operation, count int) (dataplane.Posted, error) {
	if text(name) != name {
		return dataplane.Posted{}, fmt.Errorf("posting: %w: queue pair %q", dataplane.ErrNotFound, name)
	}
	resp, raw, err := ask(ctx, q.r, q.r.stopBound, fmt.Sprintf("queue pair %q: posting %s", name, op), q.r.rpc.PostOperations,
		&pluginv1.PostOperationsRequest{Name: name, Operation: text(string(op)), Count: int64(count)})
	if err != nil {
		return postedBeside(raw), err
	}
	return postedFromProto(resp), nil
}

func (s *server) QueuePairs(ctx context.Context, _ *pluginv1.QueuePairsRequest) (*pluginv1.QueuePairsResponse, error) {
	svc, err := s.service()
	if err != nil {
		return nil, toStatus(err)
	}
	pairs, err := svc.QueuePairs().List(ctx)
	if err != nil {
		return nil, toStatus(err)
	}
	return &pluginv1.QueuePairsResponse{QueuePairs: queuePairStatesToProto(pairs)}, nil
}

func (s *server) ConnectQueuePair(ctx context.Context, req *pluginv1.ConnectQueuePairRequest) (*pluginv1.ConnectQueuePairResponse, error) {
	svc, err := s.service()
	if err != nil {
		return nil, toStatus(err)
	}
	peer, err := addressFromProto(req.GetPeer())
	if err != nil {
		return nil, toStatus(fmt.Errorf("connecting queue pair %.80q: %w", req.GetName(), err))
	}
	s.asked(ctx, "connecting a queue pair")
	if err := svc.QueuePairs().Connect(ctx, req.GetName(), peer); err != nil {
		return nil, toStatus(err)
	}
	return &pluginv1.ConnectQueuePairResponse{}, nil
}

func (s *server) PostOperations(stream grpc.ClientStreamingServer[pluginv1.PostOperationsRequest, pluginv1.PostOperationsResponse]) error {
	return serve(stream, func(ctx context.Context, req *pluginv1.PostOperationsRequest) (*pluginv1.PostOperationsResponse, error) {
		svc, err := s.service()
		if err != nil {
			return nil, toStatus(err)
		}
		if int64(int(req.GetCount())) != req.GetCount() {
			return nil, toStatus(invalid("posting %d operations: the number does not fit", req.GetCount()))
		}
		s.asked(ctx, "posting to a queue pair")
		posted, err := svc.QueuePairs().Post(ctx, req.GetName(), dataplane.Operation(req.GetOperation()), int(req.GetCount()))
		resp := &pluginv1.PostOperationsResponse{EndedCompleted: posted.Completed, EndedErrors: posted.Errors}
		if err != nil {
			return nil, withPosted(toStatus(err), resp)
		}
		return resp, nil
	})
}

// withPosted adds the completed operations to an error, because gRPC cannot return both a response and an error.
func withPosted(err error, posted *pluginv1.PostOperationsResponse) error {
	with, derr := status.Convert(err).WithDetails(protoadapt.MessageV1Of(posted))
	if derr != nil {
		return errors.Join(err, derr)
	}
	return with.Err()
}

// postedBeside is the inverse of withPosted.
func postedBeside(err error) dataplane.Posted {
	for _, d := range status.Convert(err).Details() {
		if resp, ok := d.(*pluginv1.PostOperationsResponse); ok {
			return postedFromProto(resp)
		}
	}
	return dataplane.Posted{}
}

func postedFromProto(p *pluginv1.PostOperationsResponse) dataplane.Posted {
	return dataplane.Posted{Completed: p.GetEndedCompleted(), Errors: p.GetEndedErrors()}
}
