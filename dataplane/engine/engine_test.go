package engine

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/engine/sim"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/inject"
	"github.com/flowtally/flowtally/shm"
	"github.com/flowtally/flowtally/shm/shmtest"
)

// handBackend has the counts that a test sets.
type handBackend struct {
	name    string
	changed chan struct{}

	mu           sync.Mutex
	refuse       error
	run          uint64 // part of every cookie: a new value is a source that lost its counts
	ids          map[string]uint32
	pairs        []backend.Pair
	raised       []dataplane.Condition
	staleRemoved bool
	kept         bool
}

func newHand(name string) *handBackend {
	return &handBackend{name: name, changed: make(chan struct{}, 1), run: 1 << 32, ids: make(map[string]uint32)}
}

func (b *handBackend) Name() string { return b.name }

func (b *handBackend) Install(_ context.Context, flows []backend.Placed) ([]backend.Installed, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.refuse != nil {
		return nil, b.refuse
	}
	out := make([]backend.Installed, len(flows))
	for i, f := range flows {
		id, ok := b.ids[f.Name]
		if !ok {
			id = uint32(len(b.pairs))
			b.ids[f.Name] = id
			b.pairs = append(b.pairs, backend.Pair{})
		}
		out[i] = backend.Installed{
			ID: id, Cookie: b.run + uint64(id), Basis: "l2",
			Source: b.source(),
		}
	}
	return out, nil
}

func (b *handBackend) Remove(_ context.Context, flows []backend.Placed) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, f := range flows {
		delete(b.ids, f.Name)
	}
	return nil
}

func (b *handBackend) RemoveStale(context.Context) error { b.staleRemoved = true; return nil }

func (b *handBackend) Read(ids []uint32, dst []backend.Pair) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, id := range ids {
		dst[i] = b.pairs[id]
	}
	return nil
}

func (b *handBackend) Source(backend.Placed) dataplane.Source {
	return b.source()
}

func (b *handBackend) source() dataplane.Source {
	by := flow.Backend(b.name)
	return dataplane.Source{Backend: by, Devices: []dataplane.Device{{Backend: by, Name: "dev0", Mode: "hand"}}}
}

func (b *handBackend) Conditions() []dataplane.Condition {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]dataplane.Condition(nil), b.raised...)
}

func (b *handBackend) Changed() <-chan struct{} { return b.changed }
func (b *handBackend) Close(keep bool) error    { b.kept = keep; return nil }

// count makes the flow's counter stand at p.
func (b *handBackend) count(name string, p backend.Pair) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pairs[b.ids[name]] = p
}

// forget makes the backend a new one that never counted anything.
func (b *handBackend) forget() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.run += 1 << 32
	clear(b.pairs)
}

func match(t testing.TB, text string) flow.Match {
	t.Helper()
	m, err := flow.ParseMatch(text)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func config(t testing.TB, flows ...flow.Flow) dataplane.Config {
	return dataplane.Config{
		Backend: "sim", Flows: flows,
		Mirror: dataplane.MirrorConfig{Path: filepath.Join(t.TempDir(), "t.mirror"), Counters: 128, History: 1024},
		Poll:   dataplane.PollConfig{Period: time.Millisecond},
	}
}

func start(t testing.TB, cfg dataplane.Config, backends ...backend.Backend) *Engine {
	t.Helper()
	e, err := New(inject.Backends(context.Background(), backends...), cfg, Options{})
	if err != nil {
		t.Fatal(err)
	}
	endWith(t, e)
	return e
}

// endWith ends the instance with its test, and checks the mirror that it leaves.
func endWith(t testing.TB, e *Engine) {
	t.Helper()
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
		shmtest.MustCheck(t, e.cfg.Mirror.Path)
	})
}

// reader opens the mirror as another process would.
func reader(t testing.TB, cfg dataplane.Config) *shm.Reader {
	t.Helper()
	r, err := shm.OpenReader(cfg.Mirror.Path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

// await waits until the mirror shows want for name.
func await(t testing.TB, r *shm.Reader, name string, want backend.Pair) {
	t.Helper()
	var got shm.Value
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		h, err := r.Lookup(name)
		if err != nil {
			continue
		}
		c, err := r.Counter(h)
		if err != nil {
			continue
		}
		if got, err = c.Load(); err == nil && got.Packets == want.Packets && got.Bytes == want.Bytes && got.SampledAt != 0 {
			return
		}
	}
	t.Fatalf("%s: mirror shows %+v, want %+v", name, got, want)
}

func TestTotalsGoOnOverARestart(t *testing.T) {
	web := flow.Flow{Name: "web", Match: match(t, "tcp dport 443")}
	hot := flow.Flow{Name: "hot", Match: match(t, "udp dport 53"), Latency: true}
	tests := []struct {
		name    string
		between func(b *handBackend, cfg *dataplane.Config)
		then    backend.Pair // the counts of the backend afterwards
		want    backend.Pair
		disc    uint64
	}{
		{"the source counted on", func(*handBackend, *dataplane.Config) {}, backend.Pair{Packets: 150, Bytes: 15000}, backend.Pair{Packets: 150, Bytes: 15000}, 0},
		{"the source lost its counts", func(b *handBackend, _ *dataplane.Config) { b.forget() }, backend.Pair{Packets: 7, Bytes: 700}, backend.Pair{Packets: 107, Bytes: 10700}, 1},
		{"another match is another flow", func(_ *handBackend, cfg *dataplane.Config) {
			cfg.Flows[0].Match.TCP.Dst.Value, cfg.Flows[1].Match.UDP.Dst.Value = 80, 54
		}, backend.Pair{Packets: 150, Bytes: 15000}, backend.Pair{Packets: 150, Bytes: 15000}, 0},
		{"the host was booted", func(b *handBackend, cfg *dataplane.Config) { // the mirror is on a tmpfs, and pins end with the kernel
			b.forget()
			if err := os.Remove(cfg.Mirror.Path); err != nil {
				t.Fatal(err)
			}
		}, backend.Pair{Packets: 7, Bytes: 700}, backend.Pair{Packets: 7, Bytes: 700}, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			cfg := config(t, web, hot)
			cfg.Flows[0].Match, cfg.Flows[1].Match = match(t, "tcp dport 443"), match(t, "udp dport 53")
			b := newHand("hand")
			e := start(t, cfg, b)
			r := reader(t, cfg)
			for _, n := range []string{"web", "hot"} {
				b.count(n, backend.Pair{Packets: 100, Bytes: 10000})
				await(t, r, n, backend.Pair{Packets: 100, Bytes: 10000})
			}
			if err := e.Close(); err != nil {
				t.Fatal(err)
			}
			tt.between(b, &cfg)
			e = start(t, cfg, b)
			r = reader(t, cfg)
			for _, n := range []string{"web", "hot"} {
				b.count(n, tt.then)
				await(t, r, n, tt.want)
				for _, entry := range e.writer.Entries() {
					if entry.Name == n && entry.Continuity.Discontinuities != tt.disc {
						t.Errorf("%s: %d discontinuities, want %d", n, entry.Continuity.Discontinuities, tt.disc)
					}
				}
			}
		})
	}
}

func TestWhatNobodyAsksForIsGoneAfterARestart(t *testing.T) {
	cfg := config(t, flow.Flow{Name: "kept"}, flow.Flow{Name: "dropped"})
	b := newHand("hand")
	start(t, cfg, b).Close()
	cfg.Flows = cfg.Flows[:1]
	start(t, cfg, b)
	r := reader(t, cfg)
	if _, err := r.Lookup("kept"); err != nil {
		t.Error(err)
	}
	if _, err := r.Lookup("dropped"); err == nil {
		t.Error("a flow that the configuration no longer has is still in the mirror")
	}
	if !b.staleRemoved {
		t.Error("stale flows were not removed")
	}
}

func TestAddFlowsIsAllOrNothing(t *testing.T) {
	ctx := context.Background()
	cfg := config(t, flow.Flow{Name: "a"})
	b := newHand("hand")
	e := start(t, cfg, b)
	tests := []struct {
		name   string
		refuse error
		flows  []flow.Flow
		want   error
	}{
		{"one name is taken", nil, []flow.Flow{{Name: "b"}, {Name: "a"}}, dataplane.ErrExists},
		{"two of one name", nil, []flow.Flow{{Name: "b"}, {Name: "b"}}, dataplane.ErrExists},
		{"one has no name", nil, []flow.Flow{{Name: "b"}, {}}, dataplane.ErrInvalid},
		{"an interface that the instance has not", nil, []flow.Flow{{Name: "b", Interface: "eth9"}}, dataplane.ErrInvalid},
		{"a set that the instance has not", nil, []flow.Flow{{Name: "b", Match: match(t, "ipv4 src @blocklist")}}, dataplane.ErrInvalid},
		{"the backend refuses", errors.New("table is full"), []flow.Flow{{Name: "b"}}, dataplane.ErrUnplaced},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b.mu.Lock()
			b.refuse = tt.refuse
			b.mu.Unlock()
			if _, err := e.AddFlows(ctx, tt.flows...); !errors.Is(err, tt.want) {
				t.Errorf("got %v, want %v", err, tt.want)
			}
			got, _ := e.Placements(ctx)
			if len(got) != 1 || len(e.writer.Entries()) != 1 {
				t.Errorf("%d flows, %d entries, want 1 and 1", len(got), len(e.writer.Entries()))
			}
		})
	}
}

// A refusal for an interface or backend that the instance lacks names the object and the next step.
func TestRefusalNamesTheNextStep(t *testing.T) {
	e := start(t, config(t), newHand("hand"))
	for _, tt := range []struct {
		flow flow.Flow
		want []string
	}{
		{flow.Flow{Name: "b", Interface: "eth9"}, []string{`flow "b"`, `interface "eth9"`, "not listed under interfaces; add it there"}},
		{flow.Flow{Name: "b", Backend: flow.RDMA}, []string{`flow "b"`, "rdma: ", "start it with a configuration that names backend rdma"}},
	} {
		_, err := e.AddFlows(t.Context(), tt.flow)
		for _, want := range tt.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, without %q", err, want)
			}
		}
	}
}

// A start that fails for the backend of one flow names the flow. The backend of the configuration is no flow's.
func TestAMissingBackendNamesItsFlow(t *testing.T) {
	cause := errors.New("no device")
	cfg := dataplane.Config{Backend: flow.Auto, Flows: []flow.Flow{{Name: "web"}, {Name: "nic", Backend: flow.RDMA}}}
	if err := nameFlow(cfg, flow.RDMA, cause); !errors.Is(err, cause) || err.Error() != `flow "nic": no device` {
		t.Error(err)
	}
	cfg.Backend = flow.RDMA
	if err := nameFlow(cfg, flow.RDMA, cause); err != cause {
		t.Error(err)
	}
}

func TestPlacementKeepsEveryRejection(t *testing.T) {
	first, second := newHand("first"), newHand("second")
	first.refuse = errors.New("no such hardware")
	e := start(t, config(t, flow.Flow{Name: "a"}), first, second)
	got, err := e.Placements(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	want := []dataplane.Placement{{
		Flow: flow.Flow{Name: "a"}, Order: 1, Source: second.source(),
		Counter: got[0].Counter, Rejected: []dataplane.Rejection{{Backend: "first", Reason: "no such hardware"}},
	}}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestConditionsComeAndGo(t *testing.T) {
	ctx := context.Background()
	b := newHand("hand")
	cfg := config(t, flow.Flow{Name: "a"})
	cfg.Poll.Period = time.Hour // a busy machine is late for a short one, which is a condition too
	e := start(t, cfg, b)
	events, err := e.Events(ctx)
	if err != nil {
		t.Fatal(err)
	}
	set := func(c ...dataplane.Condition) {
		b.mu.Lock()
		b.raised = c
		b.mu.Unlock()
		b.changed <- struct{}{}
	}
	next := func() dataplane.EventKind {
		select {
		case ev := <-events:
			if ev.Code != dataplane.CodeInterfaceMissing {
				t.Errorf("an event of the condition has the code %q", ev.Code)
			}
			return ev.Kind
		case <-time.After(20 * time.Second):
			t.Fatal("no event")
			return ""
		}
	}
	set(dataplane.Condition{Code: "interface-missing", Object: "dev0", Severity: dataplane.High})
	if k := next(); k != dataplane.ConditionRaised {
		t.Errorf("got %s", k)
	}
	if got, _ := e.Conditions(ctx); len(got) != 1 || got[0].Since.IsZero() {
		t.Errorf("conditions %+v", got)
	}
	set()
	if k := next(); k != dataplane.ConditionGone {
		t.Errorf("got %s", k)
	}
}

func TestAClosedEngineSaysSo(t *testing.T) {
	ctx := context.Background()
	e := start(t, config(t), newHand("hand"))
	if err := errors.Join(e.Close(), e.Close()); err != nil {
		t.Fatal(err)
	}
	_, err1 := e.AddFlows(ctx, flow.Flow{Name: "a"})
	_, err2 := e.Info(ctx)
	_, err3 := e.Events(ctx)
	for _, err := range []error{err1, err2, err3, e.RemoveFlows(ctx, "a")} {
		if !errors.Is(err, dataplane.ErrClosed) {
			t.Errorf("got %v", err)
		}
	}
}

func TestASecondInstanceIsRefused(t *testing.T) {
	cfg := config(t, flow.Flow{Name: "a"})
	start(t, cfg, newHand("hand"))
	if _, err := New(inject.Backends(context.Background(), newHand("hand")), cfg, Options{}); !errors.Is(err, dataplane.ErrInUse) {
		t.Errorf("got %v, want %v", err, dataplane.ErrInUse)
	}
}

func TestACycleAllocatesNothing(t *testing.T) {
	flows := make([]flow.Flow, 100)
	for i := range flows {
		flows[i] = flow.Flow{Name: "f" + string(rune('0'+i/10)) + string(rune('0'+i%10)), Latency: i%50 == 0}
	}
	cfg := config(t, flows...)
	cfg.Poll.Period = time.Hour
	e := start(t, cfg, newHand("hand"))
	if n := testing.AllocsPerRun(100, func() { e.poller.Poll() }); n != 0 {
		t.Errorf("%v allocations a cycle", n)
	}
}

func TestSimCountsByTheClock(t *testing.T) {
	var now time.Duration
	b := sim.New(func() time.Duration { return now })
	if _, err := b.Install(context.Background(), []backend.Placed{{}, {}}); err != nil {
		t.Fatal(err)
	}
	now = 1500 * time.Millisecond
	got := make([]backend.Pair, 2)
	if err := b.Read([]uint32{1, 0}, got); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]backend.Pair{{Packets: 3000, Bytes: 192000}, {Packets: 1500, Bytes: 96000}}, got); d != "" {
		t.Error(d)
	}
}

func flowNamed(name string) flow.Flow { return flow.Flow{Name: name} }
