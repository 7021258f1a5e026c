package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/internal/lab/frame"
	"github.com/flowtally/flowtally/internal/lab/seed"
	"github.com/flowtally/flowtally/internal/lab/times"
)

func tcpTo(port uint16) []byte {
	return frame.Sized(60, frame.Eth{Dst: [6]byte{2, 0, 0, 0, 0, 1}, Src: [6]byte{2, 0, 0, 0, 0, 2}},
		frame.IPv4{Src: frame.Addr("198.51.100.1"), Dst: frame.Addr("192.0.2.1")}, frame.TCP{Src: 9, Dst: port})
}

func set(t testing.TB, e *Engine, flows []flow.Flow, opts dataplane.SetOptions) dataplane.Difference {
	t.Helper()
	d, err := e.SetFlows(t.Context(), flows, opts)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// keepSending sends until end, which returns when the last packet has arrived.
func keepSending(t testing.TB, snd *lab.Sender) (end func()) {
	t.Helper()
	ctx, enough := context.WithCancel(t.Context())
	sent := make(chan error, 1)
	go func() { sent <- snd.Run(ctx, 0) }()
	return sync.OnceFunc(func() {
		enough()
		if err := errors.Join(<-sent, snd.Settle(t.Context())); err != nil {
			t.Error(err)
		}
	})
}

// noise are flows that change with every draw: names, matches, priorities, actions and labels. They match packets to UDP
// ports from 2000 on, and some of them all packets, behind every other flow.
func noise(t testing.TB, r *rand.Rand) (out []flow.Flow) {
	for i := range 6 {
		if r.IntN(3) == 0 {
			continue
		}
		text := fmt.Sprintf("udp dport %d", 2000+r.IntN(4))
		switch r.IntN(8) {
		case 0:
			text = fmt.Sprintf("udp dport 2000-%d", 2001+r.IntN(6))
		case 1:
			text = fmt.Sprintf("ipv4 src %s udp dport 2001", []string{"198.51.100.0/24", "198.51.0.0/16", "198.48.0.0/12", "198.0.0.0/8"}[r.IntN(4)])
		case 2:
			text = "ipv4"
		}
		f := flow.Flow{
			Name: fmt.Sprintf("n%d", i), Match: match(t, text), Priority: uint16(2 + r.IntN(3)), Action: flow.Action(r.IntN(2)), Latency: r.IntN(8) == 0,
		}
		if text == "ipv4" {
			f.Action = flow.Count
			f.Priority = 60
		}
		if r.IntN(4) == 0 {
			f.Labels = map[string]string{"round": fmt.Sprint(r.IntN(3))}
		}
		out = append(out, f)
	}
	r.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

// TestUnchangedFlowsAreExactWhileOthersChange changes other flows a thousand times under traffic: a flow that stays counts
// every packet sent to it, and a flow that drops lets no packet through.
func TestUnchangedFlowsAreExactWhileOthersChange(t *testing.T) {
	t.Parallel()
	for mode, rounds := range times.Brief(map[string]int{"native": 1000, "generic": 100}, map[string]int{"native": 40, "generic": 20}) {
		t.Run(mode, func(t *testing.T) {
			kept := []flow.Flow{
				{Name: "kept", Match: match(t, "udp dport 1001"), Priority: 1},
				{Name: "wall", Match: match(t, "tcp dport 7777"), Priority: 1, Action: flow.Drop},
				{Name: "wide", Match: match(t, "udp dport 1000-1999"), Priority: 50},
			}
			b := newBench(t, mode, kept...)
			e := b.start(t)
			r := seed.Rand(t)
			through, err := b.wire.Near.Observe(7777, false)
			if err != nil {
				t.Fatal(err)
			}
			snd, err := b.wire.Far.NewSender([]lab.Stream{
				{Frames: [][]byte{udpTo(1001, 60)}}, {Frames: [][]byte{tcpTo(7777)}}, {Frames: [][]byte{udpTo(1002, 70)}},
				{Frames: [][]byte{udpTo(2000, 60), udpTo(2001, 60), udpTo(2003, 60)}},
			}, lab.SenderOptions{Rate: times.Brief(0, 50_000)})
			if err != nil {
				t.Fatal(err)
			}
			defer snd.Close()
			end := keepSending(t, snd)
			defer end()
			var added, removed, changed, renamed int
			last, calls := 0, 0
			// A short run may draw no rename in its rounds: it goes on until it did, ten times as long at most.
			for ; calls < rounds || (changed == 0 || renamed == 0) && calls < 10*rounds; calls++ {
				flows, opts := noise(t, r), dataplane.SetOptions{}
				if i := slices.IndexFunc(flows, func(f flow.Flow) bool { return f.Name == "n5" }); i >= 0 && last > 0 && r.IntN(2) == 0 {
					// The flow that was n5 is called m5 now, and has another action.
					e.ctl.Lock()
					if c := e.flows["n5"]; c != nil && e.flows["m5"] == nil {
						f := c.Flow
						f.Name, f.Action = "m5", flow.Action(r.IntN(2))
						flows[i], opts.Renames = f, map[string]string{"n5": "m5"}
					}
					e.ctl.Unlock()
				}
				d := set(t, e, append(slices.Clone(kept), flows...), opts)
				added, removed, changed, renamed = added+len(d.Added), removed+len(d.Removed), changed+len(d.Changed), renamed+len(d.Renamed)
				last = len(flows)
				for _, c := range d.Changed {
					if slices.ContainsFunc(kept, func(f flow.Flow) bool { return f.Name == c.Name }) {
						t.Fatalf("%s", d)
					}
				}
			}
			end()
			sent := snd.Sent()
			m := reader(t, b.cfg)
			for i, name := range []string{"kept", "wall", "wide"} {
				await(t, m, name, backend.Pair(sent[i]))
			}
			seen, err := through.Stop()
			if err != nil || seen.Packets != 0 {
				t.Errorf("%d packets of a flow that drops came through, err %v", seen.Packets, err)
			}
			t.Logf("%d calls: %d flows added, %d removed, %d changed, %d renamed; %d packets sent, %d of them dropped", calls, added, removed, changed, renamed,
				sent[0].Packets+sent[1].Packets+sent[2].Packets+sent[3].Packets, sent[1].Packets)
			if sent[1].Packets == 0 || changed == 0 || renamed == 0 {
				t.Error("that shows nothing")
			}
		})
	}
}

// TestAChangeOfRanksIsOneExchange changes the rank of a flow in one call with flows that come, go and stay beside it, under
// traffic. The flow wins its packets before and after each call, so it counts every packet.
func TestAChangeOfRanksIsOneExchange(t *testing.T) {
	t.Parallel()
	first := flow.Flow{Name: "first", Match: match(t, "udp dport 1001"), Priority: 1}
	behind := flow.Flow{Name: "behind", Match: match(t, "udp dport 1000-1999"), Priority: 2}
	b := newBench(t, "native", first, behind)
	e := b.start(t)
	snd, err := b.wire.Far.NewSender([]lab.Stream{{Frames: [][]byte{udpTo(1001, 60)}}}, lab.SenderOptions{Rate: times.Brief(0, 50_000)})
	if err != nil {
		t.Fatal(err)
	}
	defer snd.Close()
	end := keepSending(t, snd)
	defer end()

	between := flow.Flow{Name: "between", Match: match(t, "ipv4 udp"), Priority: 5}
	for range times.Brief(50, 20) {
		moved, high := first, between
		moved.Priority, high.Priority = 9, 7
		last := behind
		last.Priority = 10
		// The rank of first falls below that of between, which goes in the same call, and rises above it as it comes.
		set(t, e, []flow.Flow{first, between, behind}, dataplane.SetOptions{})
		set(t, e, []flow.Flow{moved, last}, dataplane.SetOptions{})
		set(t, e, []flow.Flow{first, high, behind}, dataplane.SetOptions{})
		set(t, e, []flow.Flow{moved, last}, dataplane.SetOptions{})
	}

	end()
	sent := snd.Sent()[0]
	if await(t, reader(t, b.cfg), "first", backend.Pair(sent)); sent.Packets == 0 {
		t.Error("that shows nothing")
	}
	if n := e.flows["first"].past.Discontinuities; n != 0 {
		t.Errorf("%d discontinuities", n)
	}
}
