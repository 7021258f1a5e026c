package plugin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"

	"github.com/flowtally/flowtally/dataplane"
	pluginv1 "github.com/flowtally/flowtally/plugin/proto/v1"
	"github.com/flowtally/flowtally/probe"
)

// The calls about queue pairs: of the supervised client, of the bare one, and of the server.

// QueuePairs implements dataplane.Service.
func (c *Client) QueuePairs() dataplane.QueuePairs { return clientQueuePairs{c} }

// clientQueuePairs sends each call to the plugin process that runs now.
type clientQueuePairs struct{ c *Client }

func (q clientQueuePairs) List(ctx context.Context) ([]dataplane.QueuePairState, error) {
	s, err := q.c.session()
	if err != nil {
		return nil, err
	}
	pairs, err := s.svc.QueuePairs().List(ctx)
	return pairs, q.c.sessionError(ctx, s, err)
}

// Connect is not repeated after a restart of the plugin: the queue pair has another number
// then, which its peer must learn.
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

// knowsQueuePairs refuses a plugin that is older than the calls about queue pairs: such a plugin
// ignores the queue pairs of its configuration, as it ignores every field that it does not know.
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

// stopBound is how long an instance may take to return the completed operations after its caller
// gave up. It exceeds the time that connecting a queue pair anew may take (5 s), which nothing interrupts.
const stopBound = 10 * time.Second

// Post does not cancel its call when ctx ends, because gRPC would drop the response. It asks the server
// to stop, and returns the completed operations beside the error of ctx.
func (q remoteQueuePairs) Post(ctx context.Context, name string, op dataplane.Operation, count int) (dataplane.Posted, error) {
	r := q.r
	if text(name) != name {
		return dataplane.Posted{}, fmt.Errorf("posting: %w: queue pair %q", dataplane.ErrNotFound, name)
	}
	if r.life.Err() != nil {
		return dataplane.Posted{}, dataplane.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return dataplane.Posted{}, fmt.Errorf("queue pair %q: posting %s: %w", name, op, err)
	}
	life, hangUp := context.WithCancel(context.WithoutCancel(ctx))
	defer hangUp()
	failed := func(err error) error {
		err = r.failed(ctx, err)
		switch why := ctx.Err(); {
		case why == nil || !errors.Is(err, context.Canceled):
		case life.Err() != nil:
			err = fmt.Errorf("%w: queue pair %q: posting %s: %w: the instance did not report the completed operations", dataplane.ErrUnavailable, name, op, why)
		case !errors.Is(err, why): // the other side was cancelled; here a deadline has passed
			err = fmt.Errorf("queue pair %q: posting %s: %w", name, op, why)
		}
		return err
	}
	begun := context.AfterFunc(ctx, hangUp)
	stream, err := r.rpc.PostOperations(life, callOptions()...)
	if err != nil {
		return dataplane.Posted{}, failed(err)
	}
	err = stream.Send(&pluginv1.PostOperationsRequest{Name: name, Operation: text(string(op)), Count: int64(count)})
	if err != nil && !errors.Is(err, io.EOF) { // io.EOF: the call has ended, and RecvMsg says why
		return dataplane.Posted{}, failed(err)
	}
	begun()
	asked := context.AfterFunc(ctx, func() {
		if stream.CloseSend() != nil {
			hangUp()
		}
		select {
		case <-life.Done():
		case <-time.After(r.stopBound):
			hangUp()
		}
	})
	defer asked()
	var resp pluginv1.PostOperationsResponse
	if err := stream.RecvMsg(&resp); err != nil {
		return postedBeside(err), failed(err)
	}
	return postedFromProto(&resp), nil
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
	if err := svc.QueuePairs().Connect(ctx, req.GetName(), peer); err != nil {
		return nil, toStatus(err)
	}
	return &pluginv1.ConnectQueuePairResponse{}, nil
}

func (s *server) PostOperations(stream grpc.ClientStreamingServer[pluginv1.PostOperationsRequest, pluginv1.PostOperationsResponse]) error {
	req, err := stream.Recv()
	if err != nil {
		return err
	}
	svc, err := s.service()
	if err != nil {
		return toStatus(err)
	}
	if int64(int(req.GetCount())) != req.GetCount() {
		return toStatus(invalid("posting %d operations: the number does not fit", req.GetCount()))
	}
	ctx, stop := context.WithCancel(stream.Context())
	defer stop()
	go func() { // until the client ends its side, or the call ends
		for {
			if _, err := stream.Recv(); err != nil {
				stop()
				return
			}
		}
	}()
	posted, err := svc.QueuePairs().Post(ctx, req.GetName(), dataplane.Operation(req.GetOperation()), int(req.GetCount()))
	resp := &pluginv1.PostOperationsResponse{EndedCompleted: posted.Completed, EndedErrors: posted.Errors}
	if err != nil {
		return withPosted(toStatus(err), resp)
	}
	return stream.SendAndClose(resp)
}

// withPosted puts the operations that ended before an error into the error: gRPC returns either a response or an error.
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
