package xdp

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/internal/lab/seed"
	"github.com/flowtally/flowtally/internal/lab/times"
)

// flood sends flows of UDP from the far end and returns the packets sent for each.
func flood(t testing.TB, e *lab.End, flows, size int, o lab.SenderOptions) *lab.Sender {
	t.Helper()
	streams := make([]lab.Stream, flows)
	for i := range streams {
		streams[i] = lab.Stream{Name: ownerName(i), Frames: [][]byte{udp4(0x0a000001, 0x0a000002, uint16(1000+i), 53, size)}}
	}
	s, err := e.NewSender(streams, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func floodRules(t testing.TB, dp *Datapath, flows int) (ids []uint32) {
	t.Helper()
	var rules []Rule
	for i := range flows {
		id := mustCounter(t, dp, ownerName(i))
		ids = append(ids, id)
		r := exact4(0x0a000001, 0x0a000002, uint16(1000+i), 53, id)
		r.Order = uint32(i)
		r.Key.Out.Flags |= FlagIPv4
		r.Mask.Out.Flags &^= FlagEgress
		if i%2 == 1 { // in the trees
			r.Key.Out.L4, r.Mask.Out.L4 = [4]byte{r.Key.Out.L4[0], r.Key.Out.L4[1]}, [4]byte{255, 255}
			r.Ports[0].Dst = Range{First: 50, Last: 60}
		}
		rules = append(rules, r)
	}
	mustAdd(t, dp, rules...)
	return ids
}

func compareCounts(t testing.TB, dp *Datapath, ids []uint32, s *lab.Sender) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := s.Settle(ctx); err != nil {
		t.Fatal(err)
	}
	got := make([]Pair, len(ids))
	if err := dp.Read(ids, got); err != nil {
		t.Fatal(err)
	}
	for i, sent := range s.Sent() {
		if got[i] != (Pair(sent)) {
			t.Errorf("flow %d: counted %+v of %+v", i, got[i], sent)
		}
	}
}

func TestEveryModeCountsEveryPacket(t *testing.T) {
	const flows, packets = 8, 200_000
	for _, mode := range []struct {
		name string
		mode Mode
	}{{"native", ModeNative}, {"generic", ModeGeneric}, {"tcx", ModeTCX}, {"tcx", ModeAuto}} {
		t.Run(mode.name, func(t *testing.T) {
			w := testWire(t)
			dp := openTest(t, Options{MaxRules: 1024})
			ids := floodRules(t, dp, flows)
			if got := attach(t, dp, w.Near, AttachOptions{Mode: mode.mode, Ingress: true}); len(got) != 1 || got[0].Mode != mode.name {
				t.Fatalf("attachments: got %+v", got)
			}
			s := flood(t, w.Far, flows, 100, lab.SenderOptions{})
			if err := s.Run(context.Background(), packets); err != nil {
				t.Fatal(err)
			}
			compareCounts(t, dp, ids, s)
		})
	}
	t.Run("egress", func(t *testing.T) {
		w := testWire(t)
		dp := openTest(t, Options{MaxRules: 1024})
		ids := floodRules(t, dp, flows)
		attach(t, dp, w.Far, AttachOptions{Egress: true})
		s := flood(t, w.Far, flows, 100, lab.SenderOptions{Stack: true})
		if err := s.Run(context.Background(), packets); err != nil {
			t.Fatal(err)
		}
		if n := s.Refused(); n != 0 {
			t.Fatalf("%d frames were refused behind the hook", n)
		}
		compareCounts(t, dp, ids, s)
	})
}

// Both CPUs count packets of one size. Every value that is read must have the bytes of exactly its packets.
func TestPairsBelongTogether(t *testing.T) {
	const flows, size = 16, 100 // enough to be summed in vectors
	w := testWire(t)
	dp := openTest(t, Options{MaxRules: 1024})
	ids := floodRules(t, dp, flows)
	attach(t, dp, w.Near, AttachOptions{Mode: ModeNative, Ingress: true})
	ctx, enough := context.WithCancel(context.Background())
	defer enough()
	done := make(chan error, 2)
	var senders []*lab.Sender
	for cpu := range 2 {
		s := flood(t, w.Far, flows, size, lab.SenderOptions{CPU: cpu + 1})
		senders = append(senders, s)
		go func() { done <- s.Run(ctx, 1<<40) }()
	}
	got := make([]Pair, len(ids))
	var reads, changes uint64
	last := make([]Pair, len(ids))
	// For as long as it takes to meet the programs at work often enough, and no shorter than 3 s.
	for start := time.Now(); time.Since(start) < 3*time.Second || changes < 10_000; {
		if time.Since(start) > 2*time.Minute {
			t.Fatalf("only %d of %d reads met a new value", changes, reads)
		}
		for range 1000 {
			if err := dp.Read(ids, got); err != nil {
				t.Fatal(err)
			}
			for i, p := range got {
				if p.Bytes != p.Packets*size {
					t.Fatalf("read %d: %d packets and %d bytes", reads, p.Packets, p.Bytes)
				}
				if p != last[i] {
					changes++
				}
				last[i] = p
			}
			reads += uint64(len(ids))
		}
	}
	enough()
	for range senders {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d reads, %d of them of a new value", reads, changes)
	settle, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	sent := make([]Pair, len(ids))
	for _, s := range senders {
		if err := s.Settle(settle); err != nil {
			t.Fatal(err)
		}
		for i, x := range s.Sent() {
			sent[i].Packets += x.Packets
			sent[i].Bytes += x.Bytes
		}
	}
	if err := dp.Read(ids, got); err != nil {
		t.Fatal(err)
	}
	for i := range sent {
		if got[i] != sent[i] {
			t.Errorf("flow %d: counted %+v of %+v", i, got[i], sent[i])
		}
	}
}

// Other rules, with known and with new masks, are added and removed under traffic.
func TestRulesThatStayMissNoPacketWhileOthersChange(t *testing.T) {
	const flows = 4
	packets := times.Brief(uint64(1_500_000), 300_000)
	rng := seed.Rand(t)
	w := testWire(t)
	dp := openTest(t, Options{MaxRules: 4096})
	ids := floodRules(t, dp, flows)
	attach(t, dp, w.Near, AttachOptions{Mode: ModeNative, Ingress: true})
	other := mustCounter(t, dp, "other")
	s := flood(t, w.Far, flows, 100, lab.SenderOptions{})
	var stop atomic.Bool
	done := make(chan error, 1)
	go func() {
		err := s.Run(context.Background(), packets)
		stop.Store(true)
		done <- err
	}()
	world := world{rng}
	var live []Rule
	rounds, order := 0, uint32(1000)
	for !stop.Load() {
		rounds++
		mask := world.mask(2)
		var add []Rule
		for range 1 + rng.IntN(20) {
			order++
			r := world.rule(mask, order, other)
			// Lower than the rules that count, so that it takes nothing from them.
			r.Priority, r.Drop = 9, false
			if rng.IntN(2) == 0 {
				// A neighbour in the tuple of the rules that count.
				r = exact4(0x0a000001, 0x0a000003, uint16(order), uint16(rng.IntN(1000)), other)
				r.Mask.Out.Flags &^= FlagEgress
				r.Order = order
			}
			add = append(add, r)
		}
		if err := dp.Add(add...); err != nil {
			t.Fatal(err)
		}
		live = append(live, add...)
		if len(live) > 200 {
			rng.Shuffle(len(live), func(i, j int) { live[i], live[j] = live[j], live[i] })
			if err := dp.Remove(live[50:]...); err != nil {
				t.Fatal(err)
			}
			live = live[:50]
		}
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	t.Logf("%d rounds of changes, %d loads of programs", rounds, dp.Stats().Programs)
	compareCounts(t, dp, ids, s)
}
