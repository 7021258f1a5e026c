package engine

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/engine/xdp"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/internal/lab/seed"
	"github.com/flowtally/flowtally/internal/lab/times"
	"github.com/flowtally/flowtally/shm"
)

// crowdKind is how a crowd meets the flow a.
type crowdKind int

const (
	outranked  crowdKind = iota // a wins over all of the crowd
	outranking                  // the first flow of the crowd wins all packets of a
	unfit                       // a wins over all of it, and 20,000 flows are refused after a build of a minute
)

func (k crowdKind) String() string { return [...]string{"outranked", "outranking", "unfit"}[k] }

// drawCrowd draws n legal flows with masks of their own.
func drawCrowd(n int, kind crowdKind) []flow.Flow {
	rng := rand.New(rand.NewPCG(1, 1))
	list := make([]flow.Flow, n)
	for i := range list {
		mask := func() byte { return byte(rng.Uint32()) }
		if kind == unfit || i%20 == 0 { // few bits: rules with wide masks are in many leaves
			mask = func() byte { return byte(rng.Uint32() & rng.Uint32()) }
		}
		ip := &flow.IPv4{}
		for b := range 4 {
			ip.Src.Mask[b], ip.Dst.Mask[b] = mask(), mask()
			ip.Src.Addr[b], ip.Dst.Addr[b] = byte(rng.Uint32())&ip.Src.Mask[b], byte(rng.Uint32())&ip.Dst.Mask[b]
		}
		list[i] = flow.Flow{Name: fmt.Sprintf("crowd%d", i), Priority: 9, Match: flow.Match{IPv4: ip}}
	}
	if kind == outranking {
		list[0].Match, _ = flow.ParseMatch("udp dport 1001")
		list[0].Priority = 1
	}
	return list
}

// crowdForm is the form of the tests: FLOWTALLY_STRESS asks for the long one.
func crowdForm() (instants, flows int, kinds []crowdKind) {
	if os.Getenv("FLOWTALLY_STRESS") != "" {
		return 50, 20_000, []crowdKind{outranked, outranking, outranked, outranking, unfit}
	}
	return times.Brief(4, 2), 2500, []crowdKind{outranked, outranking}
}

// instant draws when a change is interrupted. length is how long the last one took that came to its end. An unfit
// crowd takes a minute; most of its instants are early, to keep the test short.
func instant(rng *rand.Rand, kind crowdKind, length time.Duration) time.Duration {
	at := rng.Float64()
	if kind == unfit {
		return time.Duration(at * at * at * float64(time.Minute))
	}
	return time.Duration(at * 1.1 * float64(length))
}

// crowdBench is a bench for an instance of the flow a, amid traffic of it.
type crowdBench struct {
	*bench
	sender *lab.Sender
	enough func()
	sent   chan error
}

func newCrowdBench(t *testing.T, b *bench, flows int) *crowdBench {
	t.Helper()
	pins := filepath.Join(filepath.Dir(b.cfg.XDP.PinDir), lab.Unique("e"))
	cfg := crowdConfig(pins, filepath.Join(t.TempDir(), "t.mirror"), b.wire.Near.Name, flows)
	s, err := b.wire.Far.NewSender([]lab.Stream{{Frames: [][]byte{udpTo(1001, 60)}}}, lab.SenderOptions{Rate: 2000, Batch: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return &crowdBench{bench: &bench{wire: b.wire, cfg: cfg}, sender: s}
}

// crowdConfig is the configuration of an instance of the flow a, with room for this many others.
func crowdConfig(pins, mirror, near string, flows int) dataplane.Config {
	m, _ := flow.ParseMatch("udp dport 1001")
	return dataplane.Config{
		Backend: "xdp", Interfaces: []dataplane.Interface{{Name: near, Mode: dataplane.ModeNative}},
		Flows:  []flow.Flow{{Name: "a", Match: m, Priority: 5}},
		Mirror: dataplane.MirrorConfig{Path: mirror, Counters: flows + 128, History: 1024},
		XDP:    dataplane.XDPConfig{PinDir: pins, MaxFlows: flows + 128, KeepPins: true},
		Poll:   dataplane.PollConfig{Period: time.Millisecond},
	}
}

// send sends frames of a until settle.
func (b *crowdBench) send() {
	ctx, enough := context.WithCancel(context.Background())
	b.enough, b.sent = enough, make(chan error, 1)
	go func() { b.sent <- b.sender.Run(ctx, 0) }()
}

// settle ends the traffic, and returns what was sent.
func (b *crowdBench) settle(t *testing.T) backend.Pair {
	t.Helper()
	b.enough()
	if err := errors.Join(<-b.sent, b.sender.Settle(t.Context())); err != nil {
		t.Fatal(err)
	}
	return backend.Pair(b.sender.Sent()[0])
}

// end ends an instance, and removes its pins.
func (b *crowdBench) end(t *testing.T, e *Engine) {
	t.Helper()
	err := e.Close()
	_, _, unpinned := xdp.Remove(b.cfg.XDP.PinDir)
	if err := errors.Join(err, unpinned); err != nil {
		t.Fatal(err)
	}
}

// trace is what a set of flows leaves in the kernel, in the file system and in the mirror.
type trace struct {
	rules, counters int
	pins, entries   []string
}

func (b *crowdBench) trace(t *testing.T, e *Engine) (now trace) {
	t.Helper()
	stats := e.backends[0].(*xdp.Backend).Inspect().Rules.Stats()
	now.rules, now.counters = stats.Rules, stats.Counters
	for _, entry := range e.writer.Entries() {
		now.entries = append(now.entries, entry.Name)
	}
	err := filepath.WalkDir(b.cfg.XDP.PinDir, func(path string, _ fs.DirEntry, err error) error {
		now.pins = append(now.pins, strings.TrimPrefix(path, b.cfg.XDP.PinDir))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return now
}

func (now trace) is(was trace) bool {
	return now.rules == was.rules && now.counters == was.counters && slices.Equal(now.pins, was.pins) && slices.Equal(now.entries, was.entries)
}

// totalOf returns what the flow has counted by now, and its discontinuities.
func totalOf(t *testing.T, e *Engine, name string) (total backend.Pair, discontinuities uint64) {
	t.Helper()
	e.ctl.Lock()
	defer e.ctl.Unlock()
	c := e.flows[name]
	own, err := backend.ReadOne(c.backend.(backend.Counters), c.id)
	if err != nil {
		t.Fatal(err)
	}
	return backend.Add(c.base, own), c.past.Discontinuities
}

// crowdEnv has the arguments of addCrowdUntilKilled.
const crowdEnv = "FLOWTALLY_TEST_CROWD"

// addCrowdUntilKilled is a process that starts an instance, and that adds a crowd when it is told to.
func addCrowdUntilKilled(args string) error {
	var pins, mirror, near string
	var n int
	var kind crowdKind
	if _, err := fmt.Sscan(args, &pins, &mirror, &near, &n, &kind); err != nil {
		return err
	}
	e, err := New(context.Background(), crowdConfig(pins, mirror, near, n), Options{})
	if err != nil {
		return err
	}
	list := drawCrowd(n, kind)
	fmt.Println("started")
	if _, err := fmt.Scanln(); err != nil {
		return err
	}
	if _, err := e.AddFlows(context.Background(), list...); err != nil {
		return err
	}
	fmt.Println("added")
	select {}
}

// killedAdding runs addCrowdUntilKilled, and kills it at that time after it was told to add the crowd, or once it has added
// all. It returns how long adding took, or 0.
func (b *crowdBench) killedAdding(t *testing.T, n int, kind crowdKind, at time.Duration) (took time.Duration) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), crowdEnv+"="+fmt.Sprintln(b.cfg.XDP.PinDir, b.cfg.Mirror.Path, b.wire.Near.Name, n, int(kind)))
	var failed strings.Builder
	cmd.Stderr = &failed
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	if err := errors.Join(err1, err2, b.wire.Near.NS.Do(cmd.Start)); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	words := bufio.NewScanner(out)
	if !words.Scan() {
		t.Fatalf("the process did not start: %s", failed.String())
	}

	b.send()
	r := reader(t, b.cfg)
	lab.Eventually(t, "packets counted", func() bool { return lastIn(r, "a").Packets > 0 })
	begin := time.Now()
	fmt.Fprintln(in)
	if at > 0 {
		time.AfterFunc(at, func() { cmd.Process.Kill() })
	}
	if words.Scan() {
		took = time.Since(begin)
	}
	cmd.Process.Kill()
	if cmd.Wait(); took == 0 && failed.Len() > 0 && kind != unfit {
		t.Fatalf("the process failed: %s", failed.String())
	}
	return took
}

func lastIn(r *shm.Reader, name string) shm.Value {
	h, err := r.Lookup(name)
	if err != nil {
		return shm.Value{}
	}
	c, err := r.Counter(h)
	if err != nil {
		return shm.Value{}
	}
	v, _ := c.Load()
	return v
}

// A process is killed at any instant at which it adds many flows. The next one starts with the flow of before, which has
// counted every packet, or which says that packets may be missing, and nothing of the others is left.
func TestProcessKilledWhileItAddsManyFlowsLeavesThoseOfBefore(t *testing.T) {
	kills, flows, kinds := crowdForm()
	rng := seed.Rand(t)
	wire := newBench(t, "native")
	fresh := newCrowdBench(t, wire, flows)
	e := fresh.start(t)
	was := fresh.trace(t, e)
	fresh.end(t, e)

	var length time.Duration
	for kill := range kills {
		kind, at := kinds[kill%len(kinds)], time.Duration(0) // the first one adds all
		if kill > 0 {
			at = instant(rng, kind, length)
		}
		b := newCrowdBench(t, wire, flows)
		took := b.killedAdding(t, flows, kind, at)
		if took > 0 {
			length = took
		}

		e := b.start(t)
		sent := b.settle(t)
		total, discontinuities := totalOf(t, e, "a")
		t.Logf("%s crowd, killed after %v of %v, all added: %t; %d packets of %d, %d discontinuities",
			kind, at, length, took > 0, total.Packets, sent.Packets, discontinuities)
		switch {
		case total == sent:
		case total.Packets < sent.Packets && discontinuities > 0 && kind == outranking:
		default:
			t.Errorf("%+v counted, %+v sent, %d discontinuities", total, sent, discontinuities)
		}
		await(t, reader(t, b.cfg), "a", total)
		if now := b.trace(t, e); !now.is(was) {
			t.Errorf("left are %+v, want %+v", now, was)
		}
		b.end(t, e)
	}
}

// A caller gives up at any instant at which its many flows are added. None of them stays, lists answer meanwhile, and the
// next call works.
func TestCallForManyFlowsCancelledAtAnyInstantLeavesNone(t *testing.T) {
	cancels, flows, kinds := crowdForm()
	rng := seed.Rand(t)
	b := newCrowdBench(t, newBench(t, "native"), flows)
	e := b.start(t)
	was := b.trace(t, e)
	b.send()
	var won backend.Pair // packets of a, by crowds that were added
	var length time.Duration
	discontinuities := uint64(0)
	for i := range cancels {
		kind, at := kinds[i%len(kinds)], time.Duration(0) // the first call is not cancelled
		if i > 0 {
			at = instant(rng, kind, length)
		}
		list := drawCrowd(flows, kind)
		took, late, err := addCancelled(t, e, list, at)
		if err == nil {
			length = took
		}
		t.Logf("%s crowd, cancelled after %v of %v: returns %v later, %.80v", kind, at, length, late, err)
		switch {
		case err == nil:
			won = backend.Add(won, b.remove(t, e, list))
		case !errors.Is(err, context.Canceled) && kind != unfit:
			t.Fatal(err)
		}

		if _, err := e.AddFlows(t.Context(), flow.Flow{Name: "b", Match: match(t, "tcp dport 443")}); err != nil {
			t.Fatal(err)
		}
		if err := e.RemoveFlows(t.Context(), "b"); err != nil {
			t.Fatal(err)
		}
		if now := b.trace(t, e); !now.is(was) {
			t.Fatalf("left are %+v, want %+v", now, was)
		}
		declared := discontinuitiesOf(e, "a")
		if kind != outranking && declared != discontinuities {
			t.Error("a declares a loss, though no flow of the crowd wins its packets")
		}
		discontinuities = declared
	}

	sent := b.settle(t)
	total, _ := totalOf(t, e, "a")
	t.Logf("%+v counted, %+v by crowds, %+v sent, %d discontinuities", total, won, sent, discontinuities)
	missing := int64(sent.Packets - total.Packets - won.Packets)
	if missing < 0 || missing > 0 && discontinuities == 0 {
		t.Errorf("%d packets are missing without a discontinuity", missing)
	}
}

// addCancelled adds flows to an instance of one flow in a call that is cancelled at that time, unless it is 0. Meanwhile it
// lists the flows. late is how long the call went on after that.
func addCancelled(t *testing.T, e *Engine, list []flow.Flow, at time.Duration) (took, late time.Duration, err error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var cancelled time.Time
	if at > 0 {
		time.AfterFunc(at, func() {
			cancelled = time.Now()
			cancel()
		})
	}
	begin := time.Now()
	done := behind(func() error {
		_, err := e.AddFlows(ctx, list...)
		return err
	})
	for {
		placed, err := e.Placements(t.Context())
		if n := len(placed); err != nil || n != 1 && n != 1+len(list) {
			t.Fatalf("%d flows are listed, %v", n, err)
		}
		select {
		case err := <-done:
			took = time.Since(begin)
			if errors.Is(err, context.Canceled) {
				late = time.Since(cancelled)
			}
			return took, late, err
		case <-time.After(time.Millisecond):
		}
	}
}

// remove removes a crowd, and returns what its first flow has counted.
func (b *crowdBench) remove(t *testing.T, e *Engine, list []flow.Flow) backend.Pair {
	t.Helper()
	e.ctl.Lock()
	id := e.flows[list[0].Name].id
	e.ctl.Unlock()
	if err := e.RemoveFlows(t.Context(), names(list)...); err != nil {
		t.Fatal(err)
	}
	b.bench.send(t, 1, lab.Stream{Frames: [][]byte{tcpTo(1)}}) // a program that found the rule before it went has ended
	own, err := backend.ReadOne(e.backends[0].(*xdp.Backend), id)
	if err != nil {
		t.Fatal(err)
	}
	return own
}
