package engine

import (
	"context"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/engine/xdp"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/internal/lab/need"
	"github.com/flowtally/flowtally/internal/lab/times"
	"github.com/flowtally/flowtally/shm"
)

// bench is a wire, a configuration for its near end, and traffic from its far one.
type bench struct {
	wire *lab.Wire
	cfg  dataplane.Config
}

func newBench(t *testing.T, mode string, flows ...flow.Flow) *bench {
	t.Helper()
	need.BPF(t)
	need.Netns(t)
	fs := need.BPFFS(t)
	w, err := lab.NewWire(lab.WireOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	return &bench{wire: w, cfg: dataplane.Config{
		Backend: "xdp", Interfaces: []dataplane.Interface{{Name: w.Near.Name, Mode: dataplane.Mode(mode)}}, Flows: flows,
		Mirror: dataplane.MirrorConfig{Path: filepath.Join(t.TempDir(), "t.mirror"), Counters: 128, History: 1024},
		XDP:    dataplane.XDPConfig{PinDir: filepath.Join(fs, "flowtally-test", lab.Unique("e")), MaxFlows: 1024},
		Poll:   dataplane.PollConfig{Period: time.Millisecond},
	}}
}

// start runs the engine on a thread in the near namespace.
func (b *bench) start(t *testing.T) *Engine {
	t.Helper()
	var e *Engine
	err := b.wire.Near.NS.Do(func() (err error) {
		e, err = New(context.Background(), b.cfg, Options{})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	endWith(t, e)
	return e
}

// send sends n frames of the streams and waits until all of them have arrived.
func (b *bench) send(t *testing.T, n uint64, streams ...lab.Stream) []lab.Tally {
	t.Helper()
	s, err := b.wire.Far.NewSender(streams, lab.SenderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Run(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	if err := s.Settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s.Sent()
}

func TestSentIsCounted(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"native", "generic"} {
		t.Run(mode, func(t *testing.T) {
			b := newBench(t, mode,
				flow.Flow{Name: "a", Match: match(t, "udp dport 1001"), Priority: 1},
				flow.Flow{Name: "b", Match: match(t, "ipv4 dst 192.0.2.0/24 udp dport 1000-2000"), Priority: 2},
				flow.Flow{Name: "dropped", Match: match(t, "udp dport 3003"), Action: flow.Drop, Latency: true},
				flow.Flow{Name: "never", Match: match(t, "tcp")},
			)
			e := b.start(t)
			sent := b.send(t, 100_000, lab.Stream{Frames: [][]byte{udpTo(1001, 60), udpTo(1001, 1514)}},
				lab.Stream{Frames: [][]byte{udpTo(1002, 200)}}, lab.Stream{Frames: [][]byte{udpTo(3003, 77)}})
			r := reader(t, b.cfg)
			for i, name := range []string{"a", "b", "dropped"} {
				await(t, r, name, backend.Pair(sent[i]))
			}
			await(t, r, "never", backend.Pair{})
			got, err := e.Placements(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			want := "xdp:" + b.wire.Near.Name + "/" + mode
			if got[0].Source.String() != want {
				t.Errorf("source %s, want %s", got[0].Source, want)
			}
		})
	}
}

// TestNothingIsLostWhileFlowsComeAndGo adds and removes overlapping flows under
// traffic: each packet is counted by one of the two.
func TestNothingIsLostWhileFlowsComeAndGo(t *testing.T) {
	b := newBench(t, "native", flow.Flow{Name: "all", Match: match(t, "udp"), Priority: 9})
	e := b.start(t)
	snd, err := b.wire.Far.NewSender([]lab.Stream{{Frames: [][]byte{udpTo(1001, 60), udpTo(1002, 60)}}}, lab.SenderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer snd.Close()
	ctx, enough := context.WithCancel(t.Context())
	defer enough()
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := snd.Run(ctx, 0); err != nil {
			t.Error(err)
		}
	})
	// One that sends nothing waits for programs alone.
	idle, err := b.wire.Far.NewSender([]lab.Stream{{Frames: [][]byte{udpTo(1001, 60)}}}, lab.SenderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer idle.Close()
	var some shm.Value
	r := reader(t, b.cfg)
	rounds := 0
	const atLeast, atMost = 10, 1000 // rounds, until both have met
	packets := times.Brief(uint64(1_000_000), 100_000)
	for ; rounds < atMost && (rounds < atLeast || some.Packets == 0 || snd.Sent()[0].Packets < packets); rounds++ {
		// The mask is a new one in every other round, so that programs are reloaded too.
		text := []string{"udp dport 1001", "ipv4 src 198.51.100.0/24 udp dport 1002"}[rounds%2]
		if _, err := e.AddFlows(t.Context(), flow.Flow{Name: "some", Match: match(t, text)}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Millisecond)
		last := finalOf(t, e, idle, "some")
		some.Packets += last.Packets
		some.Bytes += last.Bytes
	}
	enough()
	wg.Wait()
	if err := snd.Settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	sent := snd.Sent()[0]
	await(t, r, "all", backend.Pair{Packets: sent.Packets - some.Packets, Bytes: sent.Bytes - some.Bytes})
	t.Logf("%d packets in %d rounds, %d of them by the flow that came and went", sent.Packets, rounds, some.Packets)
	if some.Packets == 0 {
		t.Error("the flow that came and went counted nothing: the test shows nothing")
	}
}

// finalOf removes the flow, and reads its counter when no packet can add to it any more. The counter keeps its
// value until another flow gets it.
func finalOf(t *testing.T, e *Engine, idle *lab.Sender, name string) shm.Value {
	t.Helper()
	x, id := e.backends[0].(*xdp.Backend), e.flows[name].id
	if err := e.RemoveFlows(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	// A program that found the rule before it went may still be counting.
	if err := idle.Settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	var v [1]backend.Pair
	if err := x.Read([]uint32{id}, v[:]); err != nil {
		t.Fatal(err)
	}
	return shm.Value{Packets: v[0].Packets, Bytes: v[0].Bytes}
}

// TestTheKernelCountsWhileNobodyPolls closes an engine with its pins kept,
// sends, and starts the next one.
func TestTheKernelCountsWhileNobodyPolls(t *testing.T) {
	b := newBench(t, "native", flow.Flow{Name: "a", Match: match(t, "udp dport 1001")}, flow.Flow{Name: "hot", Match: match(t, "udp dport 1002"), Latency: true})
	b.cfg.XDP.KeepPins = true
	streams := []lab.Stream{{Frames: [][]byte{udpTo(1001, 60)}}, {Frames: [][]byte{udpTo(1002, 99)}}}
	var total [2]lab.Tally
	send := func() {
		for i, s := range b.send(t, 20_000, streams...) {
			total[i].Packets += s.Packets
			total[i].Bytes += s.Bytes
		}
	}
	for range 3 {
		e := b.start(t)
		send()
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
		send()
	}
	b.cfg.XDP.KeepPins = false
	e := b.start(t)
	r := reader(t, b.cfg)
	await(t, r, "a", backend.Pair(total[0]))
	await(t, r, "hot", backend.Pair(total[1]))
	for _, entry := range e.writer.Entries() {
		if entry.Continuity.Discontinuities != 0 {
			t.Errorf("%s: %d discontinuities", entry.Name, entry.Continuity.Discontinuities)
		}
	}
}
