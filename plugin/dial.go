package plugin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"syscall"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/flowtally/flowtally/dataplane"
)

// Dial connects to the control socket at path, usually from [FindControl]. Closing the Service ends the connection; the
// instance keeps running. Calls return [dataplane.ErrUnavailable] after the instance has ended.
func Dial(ctx context.Context, path string) (dataplane.Service, error) {
	dial := func(ctx context.Context, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", path)
	}
	// Connect once by hand, because gRPC does not report why a connection failed.
	conn, err := dial(ctx, "")
	if err != nil {
		return nil, dialError(path, err)
	}
	conn.Close()
	cc, err := grpc.NewClient("passthrough:///control",
		grpc.WithContextDialer(dial), grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy())
	if err != nil {
		return nil, fmt.Errorf("dialing %s: %w", path, err)
	}
	svc := newRemote(cc, cc.Close)
	if _, err := svc.Info(ctx); err != nil {
		svc.Close()
		if errors.Is(err, dataplane.ErrUnavailable) {
			return nil, fmt.Errorf("dialing %s: the instance hung up, as it does on users who are neither root nor its own: %w", path, err)
		}
		return nil, fmt.Errorf("dialing %s: %w", path, err)
	}
	return svc, nil
}

func dialError(path string, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("dialing %s: %w: no instance runs there: start one with `flowtally run`: %w", path, dataplane.ErrUnavailable, err)
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("dialing %s: %w: the instance died; its next start replaces the socket: %w", path, dataplane.ErrUnavailable, err)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("dialing %s: %w: %w", path, dataplane.ErrPermission, err)
	}
	return fmt.Errorf("dialing %s: %w", path, err)
}
