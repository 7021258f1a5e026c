package engine

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/lab"
)

// A flow that only XDP can count comes and goes over one of hardware, under traffic:
// that one moves out of its way and back. No packet is ever counted twice, and those that pass
// during a move are few; so are those of near between its last reading here and its end.
func TestFlowsMoveUnderTraffic(t *testing.T) {
	for _, c := range []struct {
		name, mode string
		without    []string
	}{{"devx", "devx", nil}, {"verbs", "dont-trap", []string{"devx"}}} {
		t.Run(c.name, func(t *testing.T) {
			b := newSoftBench(t, flow.Flow{Name: "web", Match: match(t, "ipv4 udp dport 1001"), Priority: 5})
			b.env.Without = c.without
			b.run(t)
			snd, err := b.wire.Far.NewSender([]lab.Stream{{Name: "web", Frames: [][]byte{udpTo(1001, 60)}}}, lab.SenderOptions{Rate: 50_000})
			if err != nil {
				t.Fatal(err)
			}
			defer snd.Close()
			ctx, enough := context.WithCancel(t.Context())
			defer enough()
			var sending sync.WaitGroup
			sending.Go(func() {
				if err := snd.Run(ctx, 0); err != nil {
					t.Error(err)
				}
			})
			near := uint64(0)
			for range 5 {
				time.Sleep(50 * time.Millisecond)
				if got := b.place(t, "web"); got != "rdma/"+c.mode {
					t.Errorf("web is counted by %s", got)
				}
				// Every packet has this TTL, and no device can ask for it.
				over := flow.Flow{Name: "near", Match: match(t, "ipv4 ttl 0x40/0x40 udp dport 1001"), Priority: 1}
				if _, err := b.e.AddFlows(t.Context(), over); err != nil {
					t.Fatal(err)
				}
				if got := b.place(t, "web"); got != "xdp/native" {
					t.Errorf("web is counted by %s under a flow that only XDP can count", got)
				}
				time.Sleep(50 * time.Millisecond)
				near += b.total(t, "near").Packets
				if err := b.e.RemoveFlows(t.Context(), "near"); err != nil {
					t.Fatal(err)
				}
			}
			enough()
			sending.Wait()
			if err := snd.Drain(t.Context()); err != nil {
				t.Fatal(err)
			}
			arrive()
			sent, web := snd.Sent()[0].Packets, b.total(t, "web").Packets
			t.Logf("%d packets sent, %d counted by web, %d by near, %d by neither in 10 moves", sent, web, near, int64(sent-web-near))
			if web+near > sent {
				t.Errorf("%d packets of %d are counted twice", web+near-sent, sent)
			}
			if near == 0 || (sent-web-near)*10 > sent {
				t.Errorf("%d of %d packets are counted by neither", sent-web-near, sent)
			}
		})
	}
}

// place is the backend and the mode that count a flow now.
func (b *softBench) place(t *testing.T, name string) string {
	t.Helper()
	placed, err := b.e.Placements(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range placed {
		if p.Flow.Name == name {
			return p.Source.Backend + "/" + p.Source.Mode
		}
	}
	return ""
}
