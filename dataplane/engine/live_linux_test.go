package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/shm"
)

// newLiveBench is newBench with a live view, and with a poller that publishes nothing during the test.
func newLiveBench(t *testing.T, flows ...flow.Flow) *bench {
	b := newBench(t, "native", flows...)
	b.cfg.Mirror.LiveMode = 0o600
	b.cfg.XDP.KeepPins = true
	b.cfg.Poll.Period = time.Hour
	return b
}

func liveOf(t *testing.T, r *shm.Reader, name string) shm.Live {
	t.Helper()
	h, err := r.Lookup(name)
	if err != nil {
		t.Fatal(err)
	}
	l, err := r.Live(h)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func checkLive(t *testing.T, l *shm.Live, want backend.Pair) {
	t.Helper()
	if p, b, err := l.Load(); p != want.Packets || b != want.Bytes || err != nil {
		t.Errorf("%d packets, %d bytes, %v; want %v", p, b, err, want)
	}
}

func checkNotLive(t *testing.T, l *shm.Live, want error) {
	t.Helper()
	if p, b, err := l.Load(); !errors.Is(err, want) {
		t.Errorf("%d packets, %d bytes, %v; want %v", p, b, err, want)
	}
}

// Each packet that the kernel has counted is in the live view, without a poll cycle: after changes of other rules, after a
// change of the entry, after removal and reuse of the slot, which the old view refuses, and in a mirror that is made anew.
func TestLiveViewHasEachPacketWithoutAPoll(t *testing.T) {
	udp := func(name string, port int) flow.Flow {
		return flow.Flow{Name: name, Match: match(t, fmt.Sprint("udp dport ", port))}
	}
	b := newLiveBench(t, udp("a", 1001), udp("b", 1002))
	e := b.start(t)
	r := reader(t, b.cfg)
	av, bv := liveOf(t, r, "a"), liveOf(t, r, "b")
	streams := []lab.Stream{{Frames: [][]byte{udpTo(1001, 60), udpTo(1001, 1514)}}, {Frames: [][]byte{udpTo(1002, 200)}}}
	var total [2]backend.Pair
	send := func(n uint64) {
		t.Helper()
		for i, s := range b.send(t, n, streams...) {
			total[i] = backend.Add(total[i], backend.Pair(s))
		}
	}
	checkLive(t, &av, backend.Pair{})
	send(10_000)
	checkLive(t, &av, total[0])
	checkLive(t, &bv, total[1])

	// Other rules.
	for i := range 20 {
		if _, err := e.AddFlows(t.Context(), udp(fmt.Sprint("more", i), 5000+i)); err != nil {
			t.Fatal(err)
		}
	}
	send(1000)
	checkLive(t, &av, total[0])

	// Another entry of the same counter.
	set := func(flows ...flow.Flow) {
		t.Helper()
		if _, err := e.SetFlows(t.Context(), flows, dataplane.SetOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	labelled := udp("a", 1001)
	labelled.Labels = map[string]string{"team": "edge"}
	set(labelled, udp("b", 1002))
	checkNotLive(t, &av, shm.ErrGone)
	av = liveOf(t, r, "a")
	send(1000)
	checkLive(t, &av, total[0])

	// Both slots, in the map and in the mirror, are others' now.
	set(labelled)
	checkNotLive(t, &bv, shm.ErrGone)
	total[1] = backend.Pair{}
	set(labelled, udp("c", 1002))
	cv := liveOf(t, r, "c")
	send(1000)
	checkNotLive(t, &bv, shm.ErrGone)
	checkLive(t, &cv, total[1])
	checkLive(t, &av, total[0])

	// Another file, and another socket.
	for _, name := range []string{b.cfg.Mirror.Path, shm.LivePath(b.cfg.Mirror.Path)} {
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
	e.ctl.Lock()
	e.catalogue.Repair()
	e.ctl.Unlock()
	checkNotLive(t, &av, shm.ErrStale)
	r = reader(t, b.cfg)
	av = liveOf(t, r, "a")
	send(1000)
	checkLive(t, &av, total[0])
}

// A view that was opened before a restart goes on with the next process, if that takes the map over, and counts the
// packets of the time between. If the next process does not know the reader's mirror, or has another map, the view is
// refused.
func TestLiveViewOverARestartGoesOnOrIsRefused(t *testing.T) {
	b := newLiveBench(t, flow.Flow{Name: "a", Match: match(t, "udp dport 1001")}, flow.Flow{Name: "b", Match: match(t, "udp dport 1002")})
	streams := []lab.Stream{{Frames: [][]byte{udpTo(1001, 60)}}, {Frames: [][]byte{udpTo(1002, 200)}}}
	var total backend.Pair
	send := func() {
		t.Helper()
		total = backend.Add(total, backend.Pair(b.send(t, 1000, streams...)[0]))
	}
	end := func(e *Engine) {
		t.Helper()
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
	}
	e := b.start(t)
	r := reader(t, b.cfg)
	l := liveOf(t, r, "a")
	send()
	end(e)
	send() // the programs count on, and their map can be read
	checkLive(t, &l, total)
	e = b.start(t)
	send()
	checkLive(t, &l, total)

	// Another mirror: the process cannot retire the entries of the old one, and gives a's slot to no flow or another.
	end(e)
	if err := os.Remove(b.cfg.Mirror.Path); err != nil {
		t.Fatal(err)
	}
	b.cfg.Flows = b.cfg.Flows[1:]
	e = b.start(t)
	checkNotLive(t, &l, shm.ErrNoLive)
	if _, err := r.Live(l.Handle()); !errors.Is(err, shm.ErrNoLive) {
		t.Errorf("the old mirror leads to the new map: %v", err)
	}
	r = reader(t, b.cfg)
	l = liveOf(t, r, "b")
	if p, _, err := l.Load(); p == 0 || err != nil {
		t.Errorf("%d, %v", p, err)
	}

	// Another map: the entry says which, and the reader asks for it.
	b.cfg.XDP.KeepPins = false
	end(e)
	before, _, err := l.Load()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(b.cfg.XDP.PinDir); err != nil {
		t.Fatal(err)
	}
	lab.Eventually(t, "the kernel has detached the program whose pin is gone", func() bool { // by a worker
		var near netlink.Link
		err := b.wire.Near.NS.Do(func() (err error) {
			near, err = netlink.LinkByName(b.wire.Near.Name)
			return err
		})
		return err == nil && (near.Attrs().Xdp == nil || !near.Attrs().Xdp.Attached)
	})
	e = b.start(t)
	checkNotLive(t, &l, shm.ErrNoLive)
	l = liveOf(t, r, "b")
	b.send(t, 1000, streams...)
	if p, _, err := l.Load(); p < before || err != nil {
		t.Errorf("%d packets, %v, after %d", p, err, before)
	}
	end(e)
}

// Under traffic, while flows beside it come and go, a live view never falls, is never behind the mirror, never ahead of
// the packets that were sent, and exact at the end.
func TestLiveViewUnderTrafficNeverFallsOrLags(t *testing.T) {
	b := newLiveBench(t, flow.Flow{Name: "a", Match: match(t, "udp dport 1001"), Priority: 9})
	b.cfg.Poll.Period = time.Millisecond
	b.cfg.XDP.KeepPins = false
	e := b.start(t)
	r := reader(t, b.cfg)
	l := liveOf(t, r, "a")
	c, err := r.Counter(l.Handle())
	if err != nil {
		t.Fatal(err)
	}
	s, err := b.wire.Far.NewSender([]lab.Stream{{Frames: [][]byte{udpTo(1001, 60)}}, {Frames: [][]byte{udpTo(1002, 60)}}}, lab.SenderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ctx, enough := context.WithCancel(t.Context())
	defer enough()
	var running sync.WaitGroup
	running.Go(func() {
		if err := s.Run(ctx, 0); err != nil {
			t.Error(err)
		}
	})
	var reads uint64
	running.Go(func() {
		var last uint64
		for ctx.Err() == nil {
			v, err := c.Load()
			if err != nil {
				t.Error(err)
				return
			}
			p, bytes, err := l.Load()
			if err != nil || p < v.Packets || p < last || bytes != 60*p {
				t.Errorf("%d packets, %d bytes, %v; before it was %d, and %d in the mirror", p, bytes, err, last, v.Packets)
				return
			}
			last = p
			reads++
		}
	})
	for i := range 10 {
		some := flow.Flow{Name: "some", Match: match(t, []string{"udp dport 1002", "ipv4 src 198.51.100.0/24 udp dport 1002"}[i%2])}
		if _, err := e.AddFlows(t.Context(), some); err != nil {
			t.Fatal(err)
		}
		if err := e.RemoveFlows(t.Context(), "some"); err != nil {
			t.Fatal(err)
		}
	}
	enough()
	running.Wait()
	if err := s.Settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	checkLive(t, &l, backend.Pair(s.Sent()[0]))
	t.Logf("%d reads beside %d packets", reads, s.Sent()[0].Packets)
}

// liveReader reads a flow live again and again, whatever counts it. It fails where a total falls, is below the mirror's, or
// has bytes of another flow's packets.
type liveReader struct {
	read, refused atomic.Uint64
}

func (l *liveReader) run(t *testing.T, ctx context.Context, r *shm.Reader, c shm.HandleCounter, size uint64) {
	var view shm.Live
	have, last := false, uint64(0)
	for ; ctx.Err() == nil; time.Sleep(20 * time.Microsecond) { // the other goroutines need a CPU too
		v, err := c.Load()
		if err != nil && !errors.Is(err, shm.ErrBusy) {
			t.Error(err)
			return
		}
		last = max(last, v.Packets)
		if !have {
			view, err = r.Live(c.Handle())
			have = err == nil
		}
		var packets, bytes uint64
		if have {
			packets, bytes, err = view.Load()
		}
		switch {
		case errors.Is(err, shm.ErrNoLive):
			have = false
			l.refused.Add(1)
		case errors.Is(err, shm.ErrBusy):
		case err != nil || packets < last || bytes != size*packets:
			t.Errorf("%d packets, %d bytes, %v; %d were seen before", packets, bytes, err, last)
			return
		default:
			last = packets
			l.read.Add(1)
		}
	}
}

// more waits until n rises.
func more(t *testing.T, n *atomic.Uint64, of string) {
	t.Helper()
	was := n.Load()
	for end := time.Now().Add(20 * time.Second); n.Load() == was; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("no %s", of)
		}
	}
}

// A live reader while its flow moves between XDP and a device under traffic: it reads exact totals while XDP counts, and is
// refused while the device does. It never reads another flow's count, although slots are reused meanwhile.
func TestLiveViewWhileAFlowMovesIsExactOrRefused(t *testing.T) {
	b := newSoftBench(t,
		flow.Flow{Name: "web", Match: match(t, "ipv4 udp dport 1001"), Priority: 5},
		flow.Flow{Name: "other", Match: match(t, "ipv4 udp dport 1002"), Priority: 5})
	b.Config.RDMA.Audit = true
	b.Config.Mirror.LiveMode = 0o600
	b.run(t)
	r := reader(t, b.Config)
	h, err := r.Lookup("web")
	if err != nil {
		t.Fatal(err)
	}
	c, err := r.Counter(h)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Live(h); !errors.Is(err, shm.ErrNoLive) {
		t.Fatalf("the device counts, and the live view: %v", err)
	}
	const size = 60
	snd, err := b.Wire.Far.NewSender([]lab.Stream{{Frames: [][]byte{udpTo(1001, size)}}, {Frames: [][]byte{udpTo(1002, 77)}}}, lab.SenderOptions{Rate: 20_000})
	if err != nil {
		t.Fatal(err)
	}
	defer snd.Close()
	ctx, enough := context.WithCancel(t.Context())
	defer enough()
	var live liveReader
	var running sync.WaitGroup
	running.Go(func() {
		if err := snd.Run(ctx, 0); err != nil {
			t.Error(err)
		}
	})
	running.Go(func() { live.run(t, ctx, r, c, size) })
	for round := range 2 {
		if err := b.control.Remove(b.Device); err != nil {
			t.Fatal(err)
		}
		b.counts(t, "web", "xdp")
		more(t, &live.read, "live read while XDP counts")
		name := fmt.Sprint("some", round)
		if _, err := b.e.AddFlows(t.Context(), flow.Flow{Name: name, Match: match(t, "ipv4 udp dport 1003"), Priority: 5}); err != nil {
			t.Fatal(err)
		}
		if err := b.e.RemoveFlows(t.Context(), name); err != nil {
			t.Fatal(err)
		}
		if round == 1 {
			break
		}
		if err := b.control.Return(b.Device); err != nil {
			t.Fatal(err)
		}
		b.counts(t, "web", "rdma")
		more(t, &live.refused, "refused read while the device counts")
	}
	enough()
	running.Wait()
	if err := snd.Settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	view, err := r.Live(h)
	if err != nil {
		t.Fatal(err)
	}
	checkLive(t, &view, backend.Pair(snd.Sent()[0]))
	t.Logf("%d reads, %d refused, beside %d packets", live.read.Load(), live.refused.Load(), snd.Sent()[0].Packets)
}
