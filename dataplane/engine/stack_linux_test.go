package engine

import (
	"context"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/ibv/ibvtest"
	"github.com/flowtally/flowtally/internal/hosted"
	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/internal/lab/need"
	"github.com/flowtally/flowtally/shm"
)

// softBench is an instance that counts a wire's near end over the software NIC and XDP.
type softBench struct {
	*softNIC
	control *ibvtest.Control
	lacks   map[string]dataplane.Uncounted // by flow: the declarations of moves
	sent    backend.Pair                   // by tryOnce
	e       *Engine
	events  <-chan dataplane.Event
	opts    Options
	exclude bool         // the device that tryOnce makes
	host    *hosted.Host // nil: none
}

func newSoftBench(t *testing.T, flows ...flow.Flow) *softBench {
	t.Helper()
	need.BPF(t)
	need.TCX(t)
	fs := need.BPFFS(t)
	b := &softBench{softNIC: newSoftNIC(t), lacks: make(map[string]dataplane.Uncounted)}
	b.control = b.softNIC.Controlled(t)
	b.Config.Flows = flows
	b.Config.Mirror = dataplane.MirrorConfig{Path: filepath.Join(t.TempDir(), "t.mirror"), Counters: 128, History: -1}
	b.Config.XDP = dataplane.XDPConfig{PinDir: filepath.Join(fs, "flowtally-test", lab.Unique("s")), MaxFlows: 8192}
	return b
}

// run starts the instance on a thread in the near namespace.
func (b *softBench) run(t *testing.T) {
	t.Helper()
	b.Env.Set(t.Setenv)
	ctx := context.Background()
	if b.host != nil {
		ctx = hosted.With(ctx, *b.host)
	}
	err := b.Wire.Near.NS.Do(func() (err error) {
		b.e, err = New(ctx, b.Config, b.opts)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	endWith(t, b.e)
	if b.events, err = b.e.Events(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// total returns the value in the mirror when that was sampled later than now.
func (b *softBench) total(t *testing.T, name string) backend.Pair {
	t.Helper()
	now := shm.Now()
	b.e.ctl.Lock()
	h := b.e.flows[name].handle
	b.e.ctl.Unlock()
	var v shm.Value
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		var err error
		if v, err = b.e.writer.Last(h); err != nil {
			t.Fatal(err)
		}
		if v.SampledAt >= now {
			return backend.Pair{Packets: v.Packets, Bytes: v.Bytes}
		}
	}
	t.Fatalf("%s: the last sample, %+v, is of before the question", name, v)
	return backend.Pair{}
}

// counts waits until a backend counts the flow, and notes the packets that all moves until then lack.
func (b *softBench) counts(t *testing.T, name, backend string) {
	t.Helper()
	deadline := time.After(20 * time.Second)
	for {
		select {
		case ev := <-b.events:
			if ev.Kind != dataplane.SourceChanged {
				continue
			}
			t.Logf("%s: %s", ev.Object, ev.Text)
			l := b.lacks[ev.Object]
			l.Packets += ev.Uncounted.Packets
			l.Bytes += ev.Uncounted.Bytes
			l.Unknown = l.Unknown || ev.Uncounted.Unknown
			b.lacks[ev.Object] = l
			if ev.Object != name {
				continue
			}
			placed, err := b.e.Placements(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			i := slices.IndexFunc(placed, func(p dataplane.Placement) bool { return p.Flow.Name == name })
			if string(placed[i].Source.Backend) == backend {
				return
			}
		case <-deadline:
			t.Fatalf("%s is not counted by %s", name, backend)
		}
	}
}

// A device is removed in the middle of traffic: counted packets and packets that are declared
// lost are the sent packets; with audit every packet is counted. It returns, and so do its flows.
func TestADeviceRemovedUnderTrafficDeclaresWhatIsLost(t *testing.T) {
	for _, audit := range []bool{false, true} {
		t.Run(map[bool]string{false: "declared", true: "audit"}[audit], func(t *testing.T) {
			b := newSoftBench(t,
				flow.Flow{Name: "web", Match: match(t, "ipv4 udp dport 1001"), Priority: 5},
				flow.Flow{Name: "hot", Match: match(t, "ipv4 udp dport 1002"), Priority: 5, Latency: true},
				flow.Flow{Name: "beside", Match: match(t, "ipv4 ttl 3 udp dport 1003"), Priority: 5})
			b.Config.RDMA.Audit = audit
			b.run(t)
			snd, err := b.Wire.Far.NewSender([]lab.Stream{
				{Name: "web", Frames: [][]byte{udpTo(1001, 60), udpTo(1001, 1514)}}, {Name: "hot", Frames: [][]byte{udpTo(1002, 77)}},
			}, lab.SenderOptions{Rate: 50_000})
			if err != nil {
				t.Fatal(err)
			}
			defer snd.Close()
			send := func(ctx context.Context, n uint64) {
				if err := snd.Run(ctx, n); err != nil {
					t.Error(err)
				}
				if err := snd.Settle(t.Context()); err != nil {
					t.Error(err)
				}
			}
			ctx, enough := context.WithCancel(t.Context())
			defer enough()
			var sending sync.WaitGroup
			sending.Go(func() { send(ctx, 0) })
			time.Sleep(400 * time.Millisecond)
			if err := b.control.Remove(b.Device); err != nil {
				t.Fatal(err)
			}
			b.counts(t, "web", "xdp") // and so does hot: those that win leave last
			placed, err := b.e.Placements(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range placed {
				if refusedBy(p, "rdma") == "" {
					t.Errorf("%s: by %s, rejected %v", p.Flow.Name, p.Source.Backend, p.Rejected)
				}
			}
			time.Sleep(200 * time.Millisecond)
			if audit { // it returns under traffic, too
				if err := b.control.Return(b.Device); err != nil {
					t.Fatal(err)
				}
				b.counts(t, "hot", "rdma") // those that win return first
			}
			enough()
			sending.Wait()
			check := func() {
				t.Helper()
				for i, name := range []string{"web", "hot"} {
					l, want := b.lacks[name], backend.Pair(snd.Sent()[i])
					exact := func() bool {
						return backend.Add(b.total(t, name), backend.Pair{Packets: l.Packets, Bytes: l.Bytes}) == want
					}
					for end := time.Now().Add(20 * time.Second); audit && !exact() && time.Now().Before(end); {
						time.Sleep(50 * time.Millisecond) // until a quiet moment is seen
					}
					t.Logf("%s: %d packets sent, %d counted, %d declared lost", name, want.Packets, b.total(t, name).Packets, l.Packets)
					if !exact() || l.Unknown && !audit {
						t.Errorf("%s: counted %+v and lacks %+v, sent %+v", name, b.total(t, name), l, want)
					}
					if audit && l.Packets != 0 {
						t.Errorf("%s: %d packets are declared lost though XDP counted beside", name, l.Packets)
					}
					b.e.ctl.Lock()
					if n := b.e.flows[name].past.Discontinuities; n > 1 {
						t.Errorf("%s: %d discontinuities", name, n)
					}
					b.e.ctl.Unlock()
				}
			}
			check()
			if !audit { // it returns while nothing passes
				if err := b.control.Return(b.Device); err != nil {
					t.Fatal(err)
				}
				b.counts(t, "hot", "rdma")
			}
			send(t.Context(), 5_000)
			check()
		})
	}
}
