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

// A client must learn the outcome of a change even if its context ends first: the change may be complete already. gRPC
// drops the response to a canceled call, so this file does not cancel. To give up, the client closes its side of the
// stream. The server then cancels the context of the instance and responds as usual.

// stopBound is how long a client waits for that response. Reconnecting a queue pair takes up to 5 s and cannot be
// interrupted.
const stopBound = 10 * time.Second

// ask makes such a call. After the end of ctx it waits for the response up to bound, or without limit if bound is 0. doing
// names the call in errors. raw is the error of gRPC, which can have details.
func ask[Req, Resp any](
	ctx context.Context, r *remote, bound time.Duration, doing string,
	rpc func(context.Context, ...grpc.CallOption) (grpc.ClientStreamingClient[Req, Resp], error), req *Req,
) (resp *Resp, raw, err error) {
	if r.life.Err() != nil {
		return nil, nil, dataplane.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", doing, err)
	}

	// The end of ctx must not cancel the RPC. Only hangUp does.
	life, hangUp := context.WithCancel(context.WithoutCancel(ctx))
	defer hangUp()
	var stream grpc.ClientStreamingClient[Req, Resp]
	sent := make(chan struct{}) // closed after the request was sent
	stop := context.AfterFunc(ctx, func() {
		giveUp(life, sent, bound, func() error { return stream.CloseSend() }, hangUp)
	})
	defer stop()

	if stream, err = rpc(life, callOptions()...); err == nil {
		if err = stream.Send(req); errors.Is(err, io.EOF) { // the RPC has failed, and RecvMsg returns the reason
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

	raw = err
	err = r.failed(ctx, err)
	switch why := ctx.Err(); {
	case why == nil || !errors.Is(err, context.Canceled):
	case life.Err() != nil:
		err = fmt.Errorf("%w: %s: %w: the instance did not say the outcome", dataplane.ErrUnavailable, doing, why)
	case !errors.Is(err, why): // the server saw a cancellation, but the caller has set a deadline
		err = fmt.Errorf("%s: %w", doing, why)
	}
	return nil, raw, err
}

// giveUp asks the server to cancel the call: once the request is sent, it closes the client's side of the stream. If the
// response takes longer than bound, giveUp hangs up. It returns when the call ends.
func giveUp(life context.Context, sent <-chan struct{}, bound time.Duration, closeSend func() error, hangUp func()) {
	var over <-chan time.Time // nil, which never fires, without a bound
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
	go func() { // ends when the client closes its side, or with the call
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
