package plugintest

import (
	"context"
	"net"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/plugin"
)

// Pair serves svc in this process and returns the client's end: every call
// goes through the wire format, with no socket and no second process. Close of
// the result also closes svc, as the end of a plugin does.
func Pair(t testing.TB, svc dataplane.Service) dataplane.Service {
	t.Helper()
	const buffer = 1 << 20
	lis := bufconn.Listen(buffer)
	s := grpc.NewServer(grpc.MaxRecvMsgSize(256<<20), grpc.MaxSendMsgSize(256<<20))
	plugin.Register(s, svc)
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = s.Serve(lis)
	}()
	cc, err := grpc.NewClient("passthrough:///pair",
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) }),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatalf("connecting the pair: %v", err)
	}
	client := &pair{Service: plugin.NewService(cc, cc.Close), far: svc}
	t.Cleanup(func() {
		client.Close()
		s.Stop()
		<-served
	})
	return client
}

// pair is the near end; its Close ends both.
type pair struct {
	dataplane.Service
	far dataplane.Service
}

func (p *pair) Close() error {
	err := p.far.Close()
	p.Service.Close()
	return err
}
