package engine

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/flowtally/flowtally/dataplane"
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

// Another program holds the hook at the start, leaves it, and takes it again, under traffic. The running instance moves to
// the hook by itself once the hook has been free for a while, and moves to TCX on a call. Each move is one discontinuity.
// Between the moves each packet is counted once.
func TestAnInstanceTakesTheHookBack(t *testing.T) {
	need.TCX(t)
	b := newBench(t, "auto", flow.Flow{Name: "a", Match: match(t, "udp dport 1001")})
	foreign := occupy(t, b.wire.Near)
	e, x := b.startRetaking(t, 50*time.Millisecond)
	awaitMode(t, e, x, dataplane.ModeTCX)
	m := newMoving(t, b, e)
	m.exact("beside another program")
	rounds := times.Brief(5, 2)
	for round := range rounds {
		c := awaitCondition(t, e, "xdp-beside", b.wire.Near.Name, true)
		lab.Step(t, c.Fix, "counting moves to XDP by itself when the hook has been free")
		m.move(dataplane.ModeNative, func() {
			if err := foreign.Close(); err != nil {
				t.Fatal(err)
			}
		})
		awaitCondition(t, e, "xdp-beside", b.wire.Near.Name, false)
		if round == rounds-1 {
			break
		}

		m.move(dataplane.ModeTCX, func() { m.set(dataplane.ModeTCX) })
		foreign = occupy(t, b.wire.Near)
		m.set(dataplane.ModeAuto)
		m.exact("beside the program that has come again")
	}
	t.Logf("%d moves, each one discontinuity", m.moves)
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
