package plugin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"google.golang.org/grpc"

	"github.com/flowtally/flowtally/dataplane"
)

// The calls in this file tell their outcome also to a caller that gives up: gRPC drops the response to a cancelled call.
// So a caller that gives up ends its side of the stream. The server then cancels the context of the call, and
// responds when the instance has returned.

// stopBound is how long an instance has to say the outcome when its caller gave up. Connecting a queue pair anew, which
// nothing interrupts, may take 5 s.
const stopBound = 10 * time.Second

// ask makes such a call. After the end of ctx it waits for the response no longer than bound; 0: as long as the process
// lives. doing names the call in errors. beside is the error of gRPC.
func ask[Req, Resp any](
	ctx context.Context, r *remote, bound time.Duration, doing string,
	rpc func(context.Context, ...grpc.CallOption) (grpc.ClientStreamingClient[Req, Resp], error), req *Req,
) (resp *Resp, beside, err error) {
	if r.life.Err() != nil {
		return nil, nil, dataplane.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", doing, err)
	}

	// The call has a life of its own, which ends with this function, or by hangUp.
	life, hangUp := context.WithCancel(context.WithoutCancel(ctx))
	defer hangUp()
	var stream grpc.ClientStreamingClient[Req, Resp]
	sent := make(chan struct{}) // closed when stream has the request
	stop := context.AfterFunc(ctx, func() {
		giveUp(life, sent, bound, func() error { return stream.CloseSend() }, hangUp)
	})
	defer stop()

	if stream, err = rpc(life, callOptions()...); err == nil {
		if err = stream.Send(req); errors.Is(err, io.EOF) { // the call has ended, and RecvMsg says why
			err = nil
		}
		close(sent)
	}
	if err == nil {
		resp = new(Resp)
		err = stream.RecvMsg(resp)
	}
	if err == nil {
		return resp, nil, nil
	}

	beside = err
	err = r.failed(ctx, err)
	switch why := ctx.Err(); {
	case why == nil || !errors.Is(err, context.Canceled):
	case life.Err() != nil:
		err = fmt.Errorf("%w: %s: %w: the instance did not say the outcome", dataplane.ErrUnavailable, doing, why)
	case !errors.Is(err, why): // over there it was cancelled, here it is a deadline
		err = fmt.Errorf("%s: %w", doing, why)
	}
	return nil, beside, err
}

// giveUp tells the server that the caller has left: it ends the client's side of the stream, once the request is sent. It
// hangs up when the response takes longer than bound. It returns with the end of the call.
func giveUp(life context.Context, sent <-chan struct{}, bound time.Duration, closeSend func() error, hangUp func()) {
	var over <-chan time.Time // never without a bound
	if bound > 0 {
		over = time.After(bound)
	}

	select {
	case <-sent:
		if closeSend() != nil {
			hangUp()
		}
	case <-over:
		hangUp()
	case <-life.Done():
	}
	select {
	case <-over:
		hangUp()
	case <-life.Done():
	}
}

// serve is the server side of ask.
func serve[Req, Resp any](stream grpc.ClientStreamingServer[Req, Resp], do func(context.Context, *Req) (*Resp, error)) error {
	req, err := stream.Recv()
	if err != nil {
		return err
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

	resp, err := do(ctx, req)
	if err != nil {
		return err
	}
	return stream.SendAndClose(resp)
}
