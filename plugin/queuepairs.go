package plugin

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/probe"
	pluginv1 "github.com/flowtally/flowtally/plugin/proto/v1"
)

// The calls about queue pairs, at each station of their way: the supervised client, the
// bare one, the server.

// QueuePairs implements dataplane.Service.
func (c *Client) QueuePairs(ctx context.Context) ([]dataplane.QueuePairState, error) {
	s, err := c.session()
	if err != nil {
		return nil, err
	}
	pairs, err := s.svc.QueuePairs(ctx)
	return pairs, c.settle(ctx, s, err)
}

// ConnectQueuePair implements dataplane.Service. A restart of the plugin does not
// repeat it: the queue pair has another number then, which its peer must learn.
func (c *Client) ConnectQueuePair(ctx context.Context, name string, peer dataplane.QueuePairAddress) error {
	s, err := c.session()
	if err != nil {
		return err
	}
	return c.settle(ctx, s, s.svc.ConnectQueuePair(ctx, name, peer))
}

// PostOperations implements dataplane.Service.
func (c *Client) PostOperations(ctx context.Context, name string, op dataplane.Operation, count int) (dataplane.Posted, error) {
	s, err := c.session()
	if err != nil {
		return dataplane.Posted{}, err
	}
	posted, err := s.svc.PostOperations(ctx, name, op, count)
	return posted, c.settle(ctx, s, err)
}

func (r *remote) QueuePairs(ctx context.Context) ([]dataplane.QueuePairState, error) {
	resp, err := call(ctx, r, r.rpc.QueuePairs, &pluginv1.QueuePairsRequest{})
	if err != nil {
		return nil, err
	}
	return queuePairStatesFromProto(resp.GetQueuePairs())
}

// knowsQueuePairs refuses a plugin that was built before there were any: it has ignored
// those of the configuration, as it must what it does not know, and would not say so.
func (r *remote) knowsQueuePairs(ctx context.Context) error {
	_, err := r.QueuePairs(ctx)
	if errors.Is(err, probe.ErrNotSupported) {
		return fmt.Errorf("%w: it knows no queue pairs, and the configuration has some: install the plugin of this program's release", ErrIncompatible)
	}
	return err
}

func (r *remote) ConnectQueuePair(ctx context.Context, name string, peer dataplane.QueuePairAddress) error {
	if text(name) != name { // a name that protobuf cannot carry is nobody's
		return fmt.Errorf("connecting: %w: queue pair %q", dataplane.ErrNotFound, name)
	}
	msg := addressToProto(peer)
	if text(msg.Gid) != msg.Gid {
		return fmt.Errorf("connecting queue pair %q: %w", name, invalid("gid %q is not UTF-8", msg.Gid))
	}
	_, err := call(ctx, r, r.rpc.ConnectQueuePair, &pluginv1.ConnectQueuePairRequest{Name: name, Peer: msg})
	return err
}

func (r *remote) PostOperations(ctx context.Context, name string, op dataplane.Operation, count int) (dataplane.Posted, error) {
	if text(name) != name {
		return dataplane.Posted{}, fmt.Errorf("posting: %w: queue pair %q", dataplane.ErrNotFound, name)
	}
	if r.life.Err() != nil {
		return dataplane.Posted{}, dataplane.ErrClosed
	}
	req := &pluginv1.PostOperationsRequest{Name: name, Operation: text(string(op)), Count: int64(count)}
	resp, err := r.rpc.PostOperations(ctx, req, callOptions()...)
	if err != nil {
		return postedBeside(err), r.failed(ctx, err)
	}
	return postedFromProto(resp), nil
}

func (s *server) QueuePairs(ctx context.Context, _ *pluginv1.QueuePairsRequest) (*pluginv1.QueuePairsResponse, error) {
	svc, err := s.service()
	if err != nil {
		return nil, toStatus(err)
	}
	pairs, err := svc.QueuePairs(ctx)
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
	if err := svc.ConnectQueuePair(ctx, req.GetName(), peer); err != nil {
		return nil, toStatus(err)
	}
	return &pluginv1.ConnectQueuePairResponse{}, nil
}

func (s *server) PostOperations(ctx context.Context, req *pluginv1.PostOperationsRequest) (*pluginv1.PostOperationsResponse, error) {
	svc, err := s.service()
	if err != nil {
		return nil, toStatus(err)
	}
	if int64(int(req.GetCount())) != req.GetCount() {
		return nil, toStatus(invalid("posting %d operations: the number does not fit", req.GetCount()))
	}
	posted, err := svc.PostOperations(ctx, req.GetName(), dataplane.Operation(req.GetOperation()), int(req.GetCount()))
	resp := &pluginv1.PostOperationsResponse{EndedCompleted: posted.Completed, EndedErrors: posted.Errors}
	if err != nil {
		return nil, withPosted(toStatus(err), resp)
	}
	return resp, nil
}

// withPosted puts what had ended before an error into the error: gRPC answers one of the two.
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
