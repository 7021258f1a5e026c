package engine

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/lab"
)

// A flow that only XDP can count comes and goes over one of hardware, under traffic:
// that one moves out of its way and back. No packet is ever counted twice, and only those that pass
// during a move may be counted by neither: few, unless the machine is busy with something else then. The device and TCX
// both see every packet that XDP passes.
func TestFlowsThatMoveUnderTrafficCountNoPacketTwice(t *testing.T) {
	for _, c := range []struct {
		name, mode string
		without    []string
		software   dataplane.Mode
	}{
		{"devx", "devx", nil, dataplane.ModeNative},
		{"verbs", "dont-trap", []string{"devx"}, dataplane.ModeNative},
		{"devx and tcx", "devx", nil, dataplane.ModeTCX},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newSoftBench(t, flow.Flow{Name: "web", Match: match(t, "ipv4 udp dport 1001"), Priority: 5})
			b.Env.Without = c.without
			b.Config.Interfaces[0].Mode = c.software
			b.run(t)
			snd, err := b.Wire.Far.NewSender([]lab.Stream{{Name: "web", Frames: [][]byte{udpTo(1001, 60)}}}, lab.SenderOptions{Rate: 50_000})
			if err != nil {
				t.Fatal(err)
			}
			defer snd.Close()
			for try := 1; ; try++ {
				sent, counted, moving := b.churn(t, snd, c.mode, c.software)
				t.Logf("%d packets sent, %d counted; %d by neither, of %d during the moves", sent, counted, int64(sent-counted), moving)
				if counted > sent {
					t.Fatalf("%d packets of %d are counted twice", counted-sent, sent)
				}
				neither := sent - counted
				if neither > moving {
					t.Fatalf("%d of %d packets are counted by neither, and at most %d passed during a move", neither, sent, moving)
				}
				if neither*10 <= sent {
					return
				}
				if try == 20 {
					t.Fatalf("%d of %d packets are counted by neither, and as many %d times before", neither, sent, try-1)
				}
			}
		})
	}
}

// churn adds and removes the flow five times while packets are sent, and returns how many were,
// how many were counted by either flow, and how many at most passed while one of the moves
// was under way.
func (b *softBench) churn(t *testing.T, snd *lab.Sender, mode string, software dataplane.Mode) (sent, counted, moving uint64) {
	t.Helper()
	before, web := snd.Sent()[0].Packets, b.total(t, "web").Packets
	ctx, enough := context.WithCancel(t.Context())
	defer enough()
	var sending sync.WaitGroup
	sending.Go(func() {
		if err := snd.Run(ctx, 0); err != nil {
			t.Error(err)
		}
	})
	// Packets that the kernel took before a move are counted when it begins. Of the packets that it takes when
	// the move ends, one batch is not in the number of sent packets yet.
	const batch = 64
	during := func(move func()) {
		t.Helper()
		before := snd.Sent()[0].Packets
		if err := snd.Settle(t.Context()); err != nil {
			t.Fatal(err)
		}
		move()
		moving += snd.Sent()[0].Packets - before + batch
	}
	for range 5 {
		time.Sleep(50 * time.Millisecond)
		if got := b.place(t, "web"); got != "rdma/"+mode {
			t.Errorf("web is counted by %s", got)
		}
		// Every packet has this TTL, and no device can ask for it.
		over := flow.Flow{Name: "near", Match: match(t, "ipv4 ttl 0x40/0x40 udp dport 1001"), Priority: 1}
		during(func() {
			if _, err := b.e.AddFlows(t.Context(), over); err != nil {
				t.Fatal(err)
			}
		})
		if got := b.place(t, "web"); got != "xdp/"+string(software) {
			t.Errorf("web is counted by %s under a flow that only XDP can count", got)
		}
		time.Sleep(50 * time.Millisecond)
		for end := time.Now().Add(20 * time.Second); b.total(t, "near").Packets == 0; {
			if time.Now().After(end) {
				t.Fatal("near counts nothing")
			}
		}
		during(func() {
			counted += b.total(t, "near").Packets // packets that it counts between here and its end are not attributed
			if err := b.e.RemoveFlows(t.Context(), "near"); err != nil {
				t.Fatal(err)
			}
		})
	}
	enough()
	sending.Wait()
	if err := snd.Settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	return snd.Sent()[0].Packets - before, counted + b.total(t, "web").Packets - web, moving
}

// place is the backend and the mode that count a flow now.
func (b *softBench) place(t *testing.T, name string) string {
	t.Helper()
	source := b.placementOf(t, name).Source
	return string(source.Backend) + "/" + source.Modes()
}
