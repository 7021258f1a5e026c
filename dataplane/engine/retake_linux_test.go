package engine

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/engine/xdp"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/inject"
	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/internal/lab/need"
	"github.com/flowtally/flowtally/internal/lab/times"
)

// startRetaking is start with a backend that moves from TCX to XDP when the hook has been free for a while, as on a NIC.
func (b *bench) startRetaking(t *testing.T, freeFor time.Duration) (e *Engine, x *xdp.Backend) {
	t.Helper()
	err := b.wire.Near.NS.Do(func() (err error) {
		x, err = xdp.New(xdp.Options{
			Interfaces: b.cfg.Interfaces, Config: b.cfg.XDP, Flows: b.cfg.Flows, Logger: slog.New(slog.DiscardHandler), FreeFor: freeFor, Early: []string{},
		})
		if err == nil {
			e, err = New(inject.Backends(context.Background(), x), b.cfg, Options{})
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	endWith(t, e)
	return e, x
}

// awaitMode waits until the flow "a" is counted in that mode. The checks of the interfaces come at once.
func awaitMode(t *testing.T, e *Engine, x *xdp.Backend, mode dataplane.Mode) {
	t.Helper()
	lab.Eventually(t, "counting by "+string(mode), func() bool {
		x.CheckAll()
		placed, err := e.Placements(t.Context(), "a")
		return err == nil && placed[0].Source.Modes() == string(mode)
	})
}

// Another program holds the hook at the start, leaves it, and takes it again, under traffic. The running instance moves to the
// hook by itself when that has been free for a while, and not before; it moves to TCX when it is told to. Every packet that
// reaches the stack is counted once, without a discontinuity: a rule set of its own counts them, behind.
func TestAnInstanceTakesTheHookBack(t *testing.T) {
	need.TCX(t)
	b := newBench(t, "auto", flow.Flow{Name: "a", Match: match(t, "udp dport 1001")})
	foreign := occupy(t, b.wire.Near)
	e, x := b.startRetaking(t, 50*time.Millisecond)
	awaitMode(t, e, x, dataplane.ModeTCX)
	s, err := b.wire.Far.NewSender([]lab.Stream{{Frames: [][]byte{udpTo(1001, 60)}}}, lab.SenderOptions{Rate: 20_000})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	passed := passedBehind(t, b.wire.Near)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx, 1<<40) }()
	rounds := times.Brief(5, 2)
	for round := range rounds {
		awaitCondition(t, e, "xdp-beside", b.wire.Near.Name, true)
		if err := foreign.Close(); err != nil {
			t.Fatal(err)
		}
		awaitMode(t, e, x, dataplane.ModeNative)
		awaitCondition(t, e, "xdp-beside", b.wire.Near.Name, false)
		if round == rounds-1 {
			break
		}
		for _, mode := range []dataplane.Mode{dataplane.ModeTCX, dataplane.ModeAuto} {
			file := b.cfg
			file.Flows = nil
			file.Interfaces = []dataplane.Interface{{Name: b.wire.Near.Name, Mode: mode}}
			if _, err := e.SetFlows(t.Context(), nil, dataplane.SetOptions{KeepOthers: true, Config: &file}); err != nil {
				t.Fatal(err)
			}
			if mode == dataplane.ModeTCX {
				foreign = occupy(t, b.wire.Near)
			}
		}
		awaitMode(t, e, x, dataplane.ModeTCX)
	}
	stop()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if err := s.Settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	n := passed()
	await(t, reader(t, b.cfg), "a", backend.Pair{Packets: n, Bytes: 60 * n})
	for _, entry := range e.writer.Entries() {
		if n := entry.Continuity.Discontinuities; n != 0 {
			t.Errorf("%s: %d discontinuities", entry.Name, n)
		}
	}
	t.Logf("%d packets over %d moves to the hook, each counted once", n, rounds)
}

// A hook that becomes free for less than the period is left to its owner.
func TestAnInstanceLeavesAFreeHookForAWhile(t *testing.T) {
	need.TCX(t)
	b := newBench(t, "auto", flow.Flow{Name: "a", Match: match(t, "udp dport 1001")})
	foreign := occupy(t, b.wire.Near)
	e, x := b.startRetaking(t, time.Hour)
	awaitCondition(t, e, "xdp-beside", b.wire.Near.Name, true)
	if err := foreign.Close(); err != nil {
		t.Fatal(err)
	}
	awaitCondition(t, e, "xdp-beside", b.wire.Near.Name, false)
	for range 3 {
		x.CheckAll()
	}
	awaitMode(t, e, x, dataplane.ModeTCX)
	occupy(t, b.wire.Near) // fails if the hook is taken
}
