package plugin_test

import (
	"context"
	"net"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/internal/plugintest"
	"github.com/flowtally/flowtally/plugin"
)

// pair serves svc in this process and returns the client's end: every call
// goes through the wire format, with no socket and no second process. Close of
// the result also closes svc, as the end of a plugin does.
func pair(t testing.TB, svc dataplane.Service) dataplane.Service {
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
	client := &pairEnd{Service: plugin.NewRemote(cc), far: svc}
	t.Cleanup(func() {
		client.Close()
		s.Stop()
		<-served
	})
	return client
}

// pairEnd is the near end of a pair. Its Close ends both.
type pairEnd struct {
	dataplane.Service
	far dataplane.Service
}

func (p *pairEnd) Close() error {
	err := p.far.Close()
	p.Service.Close()
	return err
}

func fake(t *testing.T, cfg dataplane.Config) dataplane.Service {
	t.Helper()
	svc, err := plugintest.NewFake(t.Context(), cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	return svc
}

func TestPairConforms(t *testing.T) {
	plugintest.Conformance(t, func() dataplane.Service { return pair(t, fake(t, dataplane.Config{})) })
}

// `flowtally flows` reaches a plugin through the wire twice.
func TestPairOfPairsConforms(t *testing.T) {
	plugintest.Conformance(t, func() dataplane.Service { return pair(t, pair(t, fake(t, dataplane.Config{}))) })
}

func TestPairedQueuePairsConform(t *testing.T) {
	plugintest.QueuePairConformance(t, "rxe0", 0, func(pairs []dataplane.QueuePair) dataplane.Service {
		return pair(t, pair(t, fake(t, dataplane.Config{QueuePairs: pairs})))
	})
}
